"""surgery: ONNX graph surgery and optimization in verified steps.

The names below are the whole public surface: what passes are written with, and the functions that the command
line is made of. They are imported on first use, so that `import surgery` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surgery.bisect import bisect as bisect
    from surgery.bridges.objects import add_pass as add_pass
    from surgery.bridges.tools.installed import OptimizerPass as OptimizerPass
    from surgery.bridges.tools.running import run_tool as run_tool
    from surgery.diff import diff as diff
    from surgery.edits import Builder as Builder
    from surgery.evaluate import compute as compute
    from surgery.graph import Graph as Graph
    from surgery.inspect import inspect as inspect
    from surgery.parity import Parity as Parity
    from surgery.pattern import Match as Match
    from surgery.registry import Size as Size
    from surgery.registry import graph_pass as graph_pass
    from surgery.registry import pattern_pass as pattern_pass
    from surgery.runner import Result as Result
    from surgery.runner import apply as apply
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
    "inspect": "inspect",
    "load": "storage",
    "save": "storage",
    "verify": "verify",
    "Builder": "edits",
    "OptimizerPass": "bridges.tools.installed",
    "run_tool": "bridges.tools.running",
    "Graph": "graph",
    "Match": "pattern",
    "Node": "views",
    "Parity": "parity",
    "Refusal": "views",
    "Size": "registry",
    "Value": "views",
    "add_pass": "bridges.objects",
    "compute": "evaluate",
    "graph_pass": "registry",
    "pattern_pass": "registry",
}

__all__ = [
    "Builder",
    "Graph",
    "Match",
    "Node",
    "OptimizerPass",
    "Parity",
    "Refusal",
    "Result",
    "Size",
    "Value",
    "add_pass",
    "apply",
    "bisect",
    "compute",
    "diff",
    "graph_pass",
    "inspect",
    "load",
    "pattern_pass",
    "run_tool",
    "save",
    "verify",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'surgery' has no attribute '{name}'")
    return getattr(importlib.import_module(f"surgery.{home}"), name)
