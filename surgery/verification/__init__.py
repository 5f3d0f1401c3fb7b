"""Whether a changed model computes what the original computes: inputs, runs, comparison, verdict."""
