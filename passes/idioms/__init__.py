"""Replace a formula with the standard operator that computes it."""
