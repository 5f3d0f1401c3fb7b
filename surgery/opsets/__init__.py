"""Which opsets a model can have: as it stands, and by passes that convert it; what stands in the way of the others."""
