"""Differences between two models: operators, nodes, constants, signature, sizes, opsets, metadata.

Properties that do not affect the results are not compared: names of nodes and inner values, their order, declared
types of inner values, doc strings, metadata of nodes, statements of provenance, and how the weights are stored.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from surgery.features.differences.compared_model import Side
from surgery.features.differences.constant_differences import constants
from surgery.features.differences.difference import Difference, compare, with_costs
from surgery.features.differences.matching import Matching
from surgery.features.differences.node_differences import Correspondence
from surgery.features.differences.replacement_causes import correspondence
from surgery.model import storage

if TYPE_CHECKING:
    import onnx

    Model = str | Path | onnx.ModelProto | storage.StoredModel


def diff(before: Model, after: Model, *, costs: bool = False) -> Difference:
    """Compare the graphs of two models, given as files or ModelProto, without running them.

    With `costs`, the operations of one run are counted too, which takes longer than the rest of the comparison.

    Raises ModelFileError if one of them cannot be read, and TransferError if a connection breaks.
    """
    first, second = storage.opened(before), storage.opened(after)
    matching = _matching(first, second)
    found = compare(first, second, correspondence(matching), constants(matching))
    return with_costs(found, first, second) if costs else found


def correspond(before: Model, after: Model) -> Correspondence:
    """Return the correspondence of the nodes of two models."""
    return correspondence(_matching(storage.opened(before), storage.opened(after)))


def _matching(before: storage.StoredModel, after: storage.StoredModel) -> Matching:
    return Matching(Side(before), Side(after))
