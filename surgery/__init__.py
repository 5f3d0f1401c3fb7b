"""surgery: ONNX graph surgery and optimization in verified steps.

The names below are the whole public surface: what passes are written with, and the functions that the command
line is made of. They are imported on first use, so that `import surgery` is quick.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from surgery.base import views
from surgery.model.shapes import late_imports

if TYPE_CHECKING:
    from surgery.base.errors import BlockedError as BlockedError
    from surgery.base.errors import ExpectationError as ExpectationError
    from surgery.base.errors import MachineError as MachineError
    from surgery.base.errors import ModelFileError as ModelFileError
    from surgery.base.errors import OutputError as OutputError
    from surgery.base.errors import PassError as PassError
    from surgery.base.errors import PatternError as PatternError
    from surgery.base.errors import PlanError as PlanError
    from surgery.base.errors import RecipeError as RecipeError
    from surgery.base.errors import SurgeryError as SurgeryError
    from surgery.base.errors import TransferError as TransferError
    from surgery.base.errors import UsageError as UsageError
    from surgery.base.errors import WorkerError as WorkerError
    from surgery.base.operators.moving import GATHERING as GATHERING
    from surgery.base.operators.moving import RESHAPES as RESHAPES
    from surgery.base.promises import Parity as Parity
    from surgery.engine.bridges.installed_tools import OptimizerPass as OptimizerPass
    from surgery.engine.bridges.pass_objects import add_pass as add_pass
    from surgery.engine.bridges.run_tool import run_tool as run_tool
    from surgery.engine.pipeline.edit import EditedGraph as EditedGraph
    from surgery.engine.pipeline.edit import edit as edit
    from surgery.engine.pipeline.records import Result as Result
    from surgery.engine.pipeline.run_options import RunOptions as RunOptions
    from surgery.engine.pipeline.runner import apply as apply
    from surgery.engine.pipeline.single import run as run
    from surgery.engine.registry.declare import graph_pass as graph_pass
    from surgery.engine.registry.declare import pattern_pass as pattern_pass
    from surgery.engine.registry.declare import predicate as predicate
    from surgery.engine.registry.options import FilePath as FilePath
    from surgery.engine.registry.options import Keeps as Keeps
    from surgery.engine.registry.options import Size as Size
    from surgery.engine.why.why_by_name import explain as explain
    from surgery.features.bisection.bisect import bisect as bisect
    from surgery.features.differences.diff import diff as diff
    from surgery.features.frameworks.export import export as export
    from surgery.features.frameworks.importing import import_weights as import_weights
    from surgery.features.frameworks.request import ModuleInput as ModuleInput
    from surgery.features.frameworks.request import ModuleInputs as ModuleInputs
    from surgery.features.inspection.inspect import histogram as histogram
    from surgery.features.inspection.inspect import inspect as inspect
    from surgery.features.inspection.opsets import opset as opset
    from surgery.features.planning.plan_making import plan as plan
    from surgery.features.splitting.split import split as split
    from surgery.features.workbench.session import Session as Session
    from surgery.interface.drawing.model_view import view as view
    from surgery.model.analysis.attributes import require_form as require_form
    from surgery.model.analysis.attributes import typed_attribute as typed_attribute
    from surgery.model.analysis.evaluate import compute as compute
    from surgery.model.analysis.extents import sum_of_dims as sum_of_dims
    from surgery.model.analysis.finiteness import is_finite as is_finite
    from surgery.model.analysis.misfits import misfit as misfit
    from surgery.model.analysis.narrowing import narrowing as narrowing
    from surgery.model.checkpoints.checkpoints import Checkpoint as Checkpoint
    from surgery.model.checkpoints.weight_files import export_weights as export_weights
    from surgery.model.graph.builder import Builder as Builder
    from surgery.model.graph.graph import Graph as Graph
    from surgery.model.graph.literals import data_type as data_type
    from surgery.model.graph.literals import literal_tensor as literal_tensor
    from surgery.model.graph.literals import packed_tensor as packed_tensor
    from surgery.model.graph.literals import unpacked_codes as unpacked_codes
    from surgery.model.graph.merging import Other as Other
    from surgery.model.graph.stripping import strip_descriptions as strip_descriptions
    from surgery.model.graph.values import Node as Node
    from surgery.model.graph.values import Refusal as Refusal
    from surgery.model.graph.values import Value as Value
    from surgery.model.patterns import Match as Match
    from surgery.model.patterns.node_text import NodeText as NodeText
    from surgery.model.patterns.option import RuleText as RuleText
    from surgery.model.patterns.renames import Renames as Renames
    from surgery.model.patterns.selector import NodeSelector as NodeSelector
    from surgery.model.patterns.tensor_names import TensorNames as TensorNames
    from surgery.model.runtime.integer_products import saturates as saturates
    from surgery.model.storage import External as External
    from surgery.model.storage import load as load
    from surgery.model.storage import save as save
    from surgery.model.targets.kernels import is_computed as is_computed
    from surgery.verification.benchmarking.bench import bench as bench
    from surgery.verification.benchmarking.bench_spec import BenchSpec as BenchSpec
    from surgery.verification.inputs.spec import AccuracySpec as AccuracySpec
    from surgery.verification.inputs.spec import DataSpec as DataSpec
    from surgery.verification.inputs.spec import ImageSpec as ImageSpec
    from surgery.verification.inputs.spec import InputsSpec as InputsSpec
    from surgery.verification.inputs.spec import MetricLimit as MetricLimit
    from surgery.verification.inputs.spec import SampleSpec as SampleSpec
    from surgery.verification.inputs.spec import TensorSpec as TensorSpec
    from surgery.verification.inputs.spec import VerifySpec as VerifySpec
    from surgery.verification.verdict.pair import verify as verify
    from surgery.verification.verdict.validity import check as check

__version__ = "0.1.0"
"""The version of surgery."""

# A wheel contains the passes and recipes inside this package; in the source tree, they are in sibling folders of it.
# Found there, they also work where the source tree shadows an installed package: Python imports from the current folder
# first.
if not os.path.isdir(os.path.join(__path__[0], "passes")):  # noqa: PTH112, PTH118 (pathlib takes longer to import)
    __path__.append(os.path.dirname(__path__[0]))  # noqa: PTH120

late_imports.register()
_PAGES = "surgery.interface.workbench.shown_session"
views.register("surgery.interface.pages.notebook", workbench=_PAGES, workbench_of_model=_PAGES)

_HOMES = {
    "EditedGraph": "engine.pipeline.edit",
    "edit": "engine.pipeline.edit",
    "Result": "engine.pipeline.records",
    "Session": "features.workbench.session",
    "histogram": "features.inspection.inspect",
    "explain": "engine.why.why_by_name",
    "opset": "features.inspection.opsets",
    "check": "verification.verdict.validity",
    "plan": "features.planning.plan_making",
    "view": "interface.drawing.model_view",
    "run": "engine.pipeline.single",
    "apply": "engine.pipeline.runner",
    "bench": "verification.benchmarking.bench",
    "bisect": "features.bisection.bisect",
    "diff": "features.differences.diff",
    "export": "features.frameworks.export",
    "export_weights": "model.checkpoints.weight_files",
    "import_weights": "features.frameworks.importing",
    "inspect": "features.inspection.inspect",
    "load": "model.storage",
    "save": "model.storage",
    "split": "features.splitting.split",
    "verify": "verification.verdict.pair",
    "BlockedError": "base.errors",
    "ExpectationError": "base.errors",
    "MachineError": "base.errors",
    "ModelFileError": "base.errors",
    "OutputError": "base.errors",
    "PassError": "base.errors",
    "PatternError": "base.errors",
    "PlanError": "base.errors",
    "RecipeError": "base.errors",
    "SurgeryError": "base.errors",
    "TransferError": "base.errors",
    "UsageError": "base.errors",
    "WorkerError": "base.errors",
    "AccuracySpec": "verification.inputs.spec",
    "BenchSpec": "verification.benchmarking.bench_spec",
    "Builder": "model.graph.builder",
    "Checkpoint": "model.checkpoints.checkpoints",
    "DataSpec": "verification.inputs.spec",
    "External": "model.storage",
    "FilePath": "engine.registry.options",
    "Other": "model.graph.merging",
    "OptimizerPass": "engine.bridges.installed_tools",
    "run_tool": "engine.bridges.run_tool",
    "Graph": "model.graph.graph",
    "ImageSpec": "verification.inputs.spec",
    "InputsSpec": "verification.inputs.spec",
    "Keeps": "engine.registry.options",
    "Match": "model.patterns",
    "MetricLimit": "verification.inputs.spec",
    "ModuleInput": "features.frameworks.request",
    "ModuleInputs": "features.frameworks.request",
    "Node": "model.graph.values",
    "NodeSelector": "model.patterns.selector",
    "Parity": "base.promises",
    "Refusal": "model.graph.values",
    "Renames": "model.patterns.renames",
    "RunOptions": "engine.pipeline.run_options",
    "NodeText": "model.patterns.node_text",
    "RuleText": "model.patterns.option",
    "SampleSpec": "verification.inputs.spec",
    "Size": "engine.registry.options",
    "TensorNames": "model.patterns.tensor_names",
    "TensorSpec": "verification.inputs.spec",
    "Value": "model.graph.values",
    "VerifySpec": "verification.inputs.spec",
    "add_pass": "engine.bridges.pass_objects",
    "compute": "model.analysis.evaluate",
    "data_type": "model.graph.literals",
    "graph_pass": "engine.registry.declare",
    "is_computed": "model.targets.kernels",
    "GATHERING": "base.operators.moving",
    "RESHAPES": "base.operators.moving",
    "is_finite": "model.analysis.finiteness",
    "literal_tensor": "model.graph.literals",
    "misfit": "model.analysis.misfits",
    "narrowing": "model.analysis.narrowing",
    "packed_tensor": "model.graph.literals",
    "pattern_pass": "engine.registry.declare",
    "predicate": "engine.registry.declare",
    "require_form": "model.analysis.attributes",
    "saturates": "model.runtime.integer_products",
    "strip_descriptions": "model.graph.stripping",
    "sum_of_dims": "model.analysis.extents",
    "typed_attribute": "model.analysis.attributes",
    "unpacked_codes": "model.graph.literals",
}

__all__ = [*_HOMES]

if not TYPE_CHECKING:  # a type checker takes the names from the imports above, and reports all others

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'surgery' has no attribute '{name}'")
        value = globals()[name] = getattr(importlib.import_module(f"surgery.{home}"), name)
        return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__doc__", "__file__", "__name__", "__path__", "__version__"])
