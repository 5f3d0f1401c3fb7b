"""Outcomes in the formats of other programs."""
