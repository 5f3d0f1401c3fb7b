"""Lineage: which passes made a node, and from which nodes of the original model."""
