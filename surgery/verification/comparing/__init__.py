"""Outputs compared with those of the original: its runs, tolerances, distributions, float64, what proves nothing."""
