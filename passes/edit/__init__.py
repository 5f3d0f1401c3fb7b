"""Edit the interface and the behavior of a model on request."""
