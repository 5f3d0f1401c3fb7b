"""Remove what does nothing."""
