"""The weights of a checkpoint into the initializers of a model: names, layouts, types, and what did not fit."""
