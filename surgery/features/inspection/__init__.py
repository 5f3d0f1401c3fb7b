"""The contents, the cost and the problems of a model, and its differences from another one."""
