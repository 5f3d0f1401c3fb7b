"""What passes ask of a graph beyond its structure: attributes, extents, values, finiteness, kernels."""
