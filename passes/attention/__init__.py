"""Pack and fuse the layers of attention."""
