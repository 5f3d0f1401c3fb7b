"""Why a pass fires or does not fire on a model: sites, near misses, refusals."""
