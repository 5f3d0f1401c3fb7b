"""How a recipe becomes verified changes: recipes, passes, the pipeline, provenance, caches and batches.

No capability of the user beyond applying recipes is here, and no text that a person reads except errors.
"""
