"""Learn and use shapes."""
