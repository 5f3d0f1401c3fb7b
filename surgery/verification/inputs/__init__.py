"""Legal inputs for a model: found from its graph, given by the user, drawn by character and seed."""
