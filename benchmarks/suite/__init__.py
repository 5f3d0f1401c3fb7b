"""Parts of the commands in this folder: the zoo, the tools, and how each result is measured and judged."""
