"""surgery: ONNX graph surgery and optimization in verified steps.

The names below are the whole public surface: what passes are written with, and the functions that the command
line is made of. They are imported on first use, so that `import surgery` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surgery.attributes import require_form as require_form
    from surgery.attributes import typed_attribute as typed_attribute
    from surgery.bisect import bisect as bisect
    from surgery.bridges.objects import add_pass as add_pass
    from surgery.bridges.tools.installed import OptimizerPass as OptimizerPass
    from surgery.bridges.tools.running import run_tool as run_tool
    from surgery.diff import diff as diff
    from surgery.edits import Builder as Builder
    from surgery.errors import BlockedError as BlockedError
    from surgery.errors import UsageError as UsageError
    from surgery.evaluate import compute as compute
    from surgery.exporting import export_weights as export_weights
    from surgery.graph import Graph as Graph
    from surgery.inspect import inspect as inspect
    from surgery.joining import Other as Other
    from surgery.literals import data_type as data_type
    from surgery.literals import literal_tensor as literal_tensor
    from surgery.parity import Parity as Parity
    from surgery.pattern import Match as Match
    from surgery.pattern.option import RuleText as RuleText
    from surgery.registry import FilePath as FilePath
    from surgery.registry import Keeps as Keeps
    from surgery.registry import Size as Size
    from surgery.registry import graph_pass as graph_pass
    from surgery.registry import pattern_pass as pattern_pass
    from surgery.runner import Result as Result
    from surgery.runner import apply as apply
    from surgery.select import NodeSelector as NodeSelector
    from surgery.select import Renames as Renames
    from surgery.select import TensorNames as TensorNames
    from surgery.splitting import split as split
    from surgery.storage import Checkpoint as Checkpoint
    from surgery.storage import External as External
    from surgery.storage import load as load
    from surgery.storage import save as save
    from surgery.verify import verify as verify
    from surgery.views import Node as Node
    from surgery.views import Refusal as Refusal
    from surgery.views import Value as Value

__version__ = "0.1.0"

_HOMES = {
    "Result": "runner",
    "apply": "runner",
    "bisect": "bisect",
    "diff": "diff",
    "export_weights": "exporting",
    "inspect": "inspect",
    "load": "storage",
    "save": "storage",
    "split": "splitting",
    "verify": "verify",
    "BlockedError": "errors",
    "Builder": "edits",
    "Checkpoint": "storage",
    "External": "storage",
    "FilePath": "registry",
    "Other": "joining",
    "OptimizerPass": "bridges.tools.installed",
    "run_tool": "bridges.tools.running",
    "Graph": "graph",
    "Keeps": "registry",
    "Match": "pattern",
    "Node": "views",
    "NodeSelector": "select",
    "Parity": "parity",
    "Refusal": "views",
    "Renames": "select",
    "RuleText": "pattern.option",
    "Size": "registry",
    "TensorNames": "select",
    "UsageError": "errors",
    "Value": "views",
    "add_pass": "bridges.objects",
    "compute": "evaluate",
    "data_type": "literals",
    "graph_pass": "registry",
    "literal_tensor": "literals",
    "pattern_pass": "registry",
    "require_form": "attributes",
    "typed_attribute": "attributes",
}

__all__ = [
    "BlockedError",
    "Builder",
    "Checkpoint",
    "External",
    "FilePath",
    "Graph",
    "Keeps",
    "Match",
    "Node",
    "NodeSelector",
    "OptimizerPass",
    "Other",
    "Parity",
    "Refusal",
    "Renames",
    "Result",
    "RuleText",
    "Size",
    "TensorNames",
    "UsageError",
    "Value",
    "add_pass",
    "apply",
    "bisect",
    "compute",
    "data_type",
    "diff",
    "export_weights",
    "graph_pass",
    "inspect",
    "literal_tensor",
    "load",
    "pattern_pass",
    "require_form",
    "run_tool",
    "save",
    "split",
    "typed_attribute",
    "verify",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'surgery' has no attribute '{name}'")
    return getattr(importlib.import_module(f"surgery.{home}"), name)
