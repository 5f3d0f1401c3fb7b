"""Why a pass does what it does with a model, or does nothing: sites, near misses, refusals."""
