"""Shape and content inference: types, dims, and the elements of small integer tensors."""
