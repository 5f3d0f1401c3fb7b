"""Attributes with long lists that determine no type and no shape, so that shape inference does not need them."""

from __future__ import annotations

from typing import Final

_ENSEMBLE: Final = (
    *("falsenodeids", "featureids", "hitrates", "missing_value_tracks_true", "modes", "nodeids", "treeids"),
    *("truenodeids", "values"),
)

TABLES: Final = frozenset(
    {
        *(f"nodes_{name}" for name in _ENSEMBLE),
        *(f"{prefix}_{name}" for prefix in ("class", "target") for name in ("ids", "nodeids", "treeids", "weights")),
        *("coefficients", "support_vectors"),
    }
)
"""The lists of tree ensembles (before opset 5 of ai.onnx.ml), support vector machines and linear models that grow with
what was trained, by the name of the attribute."""

_LOOKED_UP: Final = ("nodes_values", "class_weights", "target_weights", "values_floats", "values_int64s")

LOOKED_UP: Final = frozenset(
    {*_LOOKED_UP, *(f"{name}_as_tensor" for name in _LOOKED_UP[:3])}
    | {"leaf_weights", "nodes_splits", "values_strings", "values_tensor"}
)
"""Attributes with numbers or texts of which one input reads a few, such as the leaves that it reaches."""
