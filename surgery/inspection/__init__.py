"""The contents, the cost and the problems of a model."""
