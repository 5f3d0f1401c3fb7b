"""Relative speed of models: paired times, intervals, memory, and a profile by operator."""
