"""A live model with a list of recipe steps: add, undo, move and switch steps, each of them verified."""
