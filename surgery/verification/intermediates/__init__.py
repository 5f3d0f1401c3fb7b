"""Values inside of two models: which belong together, which of them show what the outputs do not."""
