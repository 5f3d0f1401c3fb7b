"""From training frameworks to models: modules of PyTorch, exported and compared; the weights of checkpoints."""
