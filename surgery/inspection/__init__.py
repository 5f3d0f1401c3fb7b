"""What a model is made of, what it costs, what is wrong with it, and how it differs from another one."""
