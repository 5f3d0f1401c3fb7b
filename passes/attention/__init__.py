"""Pack and fuse the operators of attention."""
