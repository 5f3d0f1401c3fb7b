"""Turn a formula into the one standard operator that computes it."""
