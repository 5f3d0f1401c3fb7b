"""The text of recipes: YAML as a tree with positions, and spelling suggestions."""
