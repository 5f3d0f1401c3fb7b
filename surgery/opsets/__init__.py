"""Which opsets a model can have: without conversion, and converted by passes; the obstacles for the others."""
