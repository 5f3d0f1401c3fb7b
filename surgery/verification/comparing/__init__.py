"""Outputs side by side: tolerances, distances, distributions, what proves nothing, and the judgement."""
