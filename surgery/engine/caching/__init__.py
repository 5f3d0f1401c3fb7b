"""The cache of steps and verdicts of earlier runs, on disk."""
