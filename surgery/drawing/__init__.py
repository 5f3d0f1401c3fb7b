"""Drawings of models: their history, groups and repeated blocks, and where each box stands."""

from surgery.drawing.assembling import document as document
from surgery.drawing.history import History as History

__all__ = ["History", "document"]
