"""Statements of provenance: what a model was made of, by what, and with which verdicts."""
