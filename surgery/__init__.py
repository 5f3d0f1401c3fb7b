"""surgery: ONNX graph surgery and optimization in verified steps.

The names below are the whole public surface: what passes are written with, and the functions that the command
line is made of. They are imported on first use, so that `import surgery` is quick.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from surgery.shapes import late_imports

if TYPE_CHECKING:
    from surgery.benchmarking.bench import bench as bench
    from surgery.bisection.bisect import bisect as bisect
    from surgery.bridges.installed_tools import OptimizerPass as OptimizerPass
    from surgery.bridges.objects import add_pass as add_pass
    from surgery.bridges.run_tool import run_tool as run_tool
    from surgery.engine.records import Result as Result
    from surgery.engine.runner import apply as apply
    from surgery.engine.single import run as run
    from surgery.errors import BlockedError as BlockedError
    from surgery.errors import UsageError as UsageError
    from surgery.errors import WorkerError as WorkerError
    from surgery.frameworks.export import export as export
    from surgery.frameworks.importing import import_weights as import_weights
    from surgery.graph.attributes import require_form as require_form
    from surgery.graph.attributes import typed_attribute as typed_attribute
    from surgery.graph.builder import Builder as Builder
    from surgery.graph.evaluate import compute as compute
    from surgery.graph.extents import sum_of_dims as sum_of_dims
    from surgery.graph.finiteness import is_finite as is_finite
    from surgery.graph.graph import Graph as Graph
    from surgery.graph.literals import data_type as data_type
    from surgery.graph.literals import literal_tensor as literal_tensor
    from surgery.graph.literals import packed_tensor as packed_tensor
    from surgery.graph.literals import unpacked_codes as unpacked_codes
    from surgery.graph.merge import Other as Other
    from surgery.graph.misfits import misfit as misfit
    from surgery.graph.narrowing import narrowing as narrowing
    from surgery.graph.stripping import strip_descriptions as strip_descriptions
    from surgery.graph.values import Node as Node
    from surgery.graph.values import Refusal as Refusal
    from surgery.graph.values import Value as Value
    from surgery.inspection.diff import diff as diff
    from surgery.inspection.inspect import histogram as histogram
    from surgery.inspection.inspect import inspect as inspect
    from surgery.inspection.opsets import opset as opset
    from surgery.operators.kernels import is_computed as is_computed
    from surgery.patterns import Match as Match
    from surgery.patterns.option import RuleText as RuleText
    from surgery.patterns.renames import Renames as Renames
    from surgery.patterns.selector import NodeSelector as NodeSelector
    from surgery.patterns.tensor_names import TensorNames as TensorNames
    from surgery.planning.make import plan as plan
    from surgery.promises import Parity as Parity
    from surgery.registry.declare import graph_pass as graph_pass
    from surgery.registry.declare import pattern_pass as pattern_pass
    from surgery.registry.declare import predicate as predicate
    from surgery.registry.options import FilePath as FilePath
    from surgery.registry.options import Keeps as Keeps
    from surgery.registry.options import Size as Size
    from surgery.runtime.integer_products import saturates as saturates
    from surgery.splitting.split import split as split
    from surgery.storage import Checkpoint as Checkpoint
    from surgery.storage import External as External
    from surgery.storage import load as load
    from surgery.storage import save as save
    from surgery.storage.export_weights import export_weights as export_weights
    from surgery.verification.verdict.pair import verify as verify
    from surgery.verification.verdict.validity import check as check
    from surgery.why.asked import explain as explain

__version__ = "0.1.0"

# A wheel contains the passes and recipes inside this package; in the source tree, they are in sibling folders of it.
# Found there, they also work where the source tree shadows an installed package: Python imports from the current folder
# first.
if not os.path.isdir(os.path.join(__path__[0], "passes")):  # noqa: PTH112, PTH118 (pathlib takes longer to import)
    __path__.append(os.path.dirname(__path__[0]))  # noqa: PTH120

late_imports.register()

_HOMES = {
    "Result": "engine.records",
    "histogram": "inspection.inspect",
    "explain": "why.asked",
    "opset": "inspection.opsets",
    "check": "verification.verdict.validity",
    "plan": "planning.make",
    "run": "engine.single",
    "apply": "engine.runner",
    "bench": "benchmarking.bench",
    "bisect": "bisection.bisect",
    "diff": "inspection.diff",
    "export": "frameworks.export",
    "export_weights": "storage.export_weights",
    "import_weights": "frameworks.importing",
    "inspect": "inspection.inspect",
    "load": "storage",
    "save": "storage",
    "split": "splitting.split",
    "verify": "verification.verdict.pair",
    "BlockedError": "errors",
    "Builder": "graph.builder",
    "Checkpoint": "storage",
    "External": "storage",
    "FilePath": "registry.options",
    "Other": "graph.merge",
    "OptimizerPass": "bridges.installed_tools",
    "run_tool": "bridges.run_tool",
    "Graph": "graph.graph",
    "Keeps": "registry.options",
    "Match": "patterns",
    "Node": "graph.values",
    "NodeSelector": "patterns.selector",
    "Parity": "promises",
    "Refusal": "graph.values",
    "Renames": "patterns.renames",
    "RuleText": "patterns.option",
    "Size": "registry.options",
    "TensorNames": "patterns.tensor_names",
    "UsageError": "errors",
    "Value": "graph.values",
    "WorkerError": "errors",
    "add_pass": "bridges.objects",
    "compute": "graph.evaluate",
    "data_type": "graph.literals",
    "graph_pass": "registry.declare",
    "is_computed": "operators.kernels",
    "is_finite": "graph.finiteness",
    "literal_tensor": "graph.literals",
    "misfit": "graph.misfits",
    "narrowing": "graph.narrowing",
    "packed_tensor": "graph.literals",
    "pattern_pass": "registry.declare",
    "predicate": "registry.declare",
    "require_form": "graph.attributes",
    "saturates": "runtime.integer_products",
    "strip_descriptions": "graph.stripping",
    "sum_of_dims": "graph.extents",
    "typed_attribute": "graph.attributes",
    "unpacked_codes": "graph.literals",
}

__all__ = [*_HOMES]

if not TYPE_CHECKING:  # a type checker takes the names from the imports above, and reports all others

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'surgery' has no attribute '{name}'")
        return getattr(importlib.import_module(f"surgery.{home}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__doc__", "__file__", "__name__", "__path__", "__version__"])
