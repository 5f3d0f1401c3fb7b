"""Linear layers, and the rank of hidden states."""
