"""Remove nodes and values that have no effect."""
