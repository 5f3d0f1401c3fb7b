"""What a model is made of, what it costs, and what is wrong with it."""
