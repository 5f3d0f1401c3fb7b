"""Split a model into files that run one after the other, verified against the whole before anything is written."""
