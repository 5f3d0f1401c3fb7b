"""Linear layers, and the rank in which hidden states are held."""
