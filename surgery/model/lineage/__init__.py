"""The origin of nodes and values across changes."""
