"""The cache of steps and verdicts: what earlier runs have found out, on disk."""
