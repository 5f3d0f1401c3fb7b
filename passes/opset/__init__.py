"""Move a model between opsets."""
