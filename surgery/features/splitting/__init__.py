"""Split a model into files that run in sequence, verified against the whole before anything is written."""
