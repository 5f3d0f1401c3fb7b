"""Drawings of models: history, groups, repeated blocks, and the layout of boxes."""

from surgery.interface.drawing.assembling import document as document
from surgery.interface.drawing.history import History as History
from surgery.interface.drawing.model_view import view as view

__all__ = ["History", "document", "view"]
