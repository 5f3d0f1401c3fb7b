"""How the Python reference is arranged: each public name of surgery is in one group of one page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class NameGroup:
    """A section: its title, the sentence above it, and the names in it."""

    title: str
    about: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class GroupedPage:
    """A page: its title, the text above it, its groups, and the title of the types that the functions on it return.

    `followed` are further types: those of attributes of the returned ones.
    """

    title: str
    about: str
    groups: tuple[NameGroup, ...]
    returned: str
    followed: frozenset[str] = field(default=frozenset())


PAGES: Mapping[str, GroupedPage] = {
    "python": GroupedPage(
        "Python",
        """`import surgery` imports little; each name is imported on first use. [Use surgery in scripts and
CI](../how-to/scripts-and-ci.md#python) shows the functions in a script, [Edit a model by
hand](../how-to/edit-by-hand.md) shows `surgery.edit`, and [Python: passes](python-passes.md) has what passes are
written with.""",
        (
            NameGroup(
                "Run a recipe or a pass",
                "They edit a model in verified steps. A negative verdict is part of the result and not an exception.",
                ("apply", "run", "plan", "bisect", "RunOptions"),
            ),
            NameGroup("Look at a model", "", ("view", "inspect", "histogram", "opset", "explain", "diff")),
            NameGroup("Verify and measure", "", ("verify", "check", "bench")),
            NameGroup("Edit by hand", "", ("edit", "EditedGraph")),
            NameGroup(
                "Edit step by step",
                "A live model with the steps of a recipe, as `surgery open` has it.",
                ("Session",),
            ),
            NameGroup(
                "Load, save, convert and split",
                "",
                ("load", "save", "External", "split", "export", "import_weights", "export_weights"),
            ),
            NameGroup(
                "Settings",
                "Arguments of the functions above; the settings of a recipe are those of its file.",
                (
                    *("InputsSpec", "DataSpec", "ImageSpec", "TensorSpec", "SampleSpec", "VerifySpec"),
                    *("AccuracySpec", "MetricLimit", "BenchSpec", "ModuleInputs", "ModuleInput"),
                ),
            ),
            NameGroup("Results", "", ("Result",)),
            NameGroup(
                "Errors",
                "Catch `SurgeryError` for all of them.",
                (
                    *("SurgeryError", "UsageError", "RecipeError", "PlanError", "PatternError", "ModelFileError"),
                    *("OutputError", "ExpectationError", "BlockedError", "PassError", "WorkerError"),
                    *("TransferError", "MachineError"),
                ),
            ),
            NameGroup("Constants", "", ("__version__",)),
        ),
        "Types that the functions return",
        frozenset({"StepRecord", "Summary", "Verdict", "Figures", "Expectation"}),
    ),
    "python-passes": GroupedPage(
        "Python: passes",
        """What passes are written with. [Write a pass](../how-to/write-a-pass.md) shows how to use it;
[Python](python.md) has the functions that run passes, and the errors.""",
        (
            NameGroup(
                "Declare a pass",
                "",
                ("pattern_pass", "graph_pass", "predicate", "add_pass", "Parity"),
            ),
            NameGroup(
                "Types of options",
                "Annotations of the parameters of a pass, next to `bool`, `int`, `float`, `str`, `Literal`, lists and "
                "mappings.",
                (
                    "Size",
                    "FilePath",
                    "Keeps",
                    "NodeSelector",
                    "TensorNames",
                    "Renames",
                    "RuleText",
                    "NodeText",
                    "OptimizerPass",
                ),
            ),
            NameGroup("Read a graph", "", ("Graph", "Node", "Value", "Match")),
            NameGroup("Edit a graph", "", ("Builder", "Refusal", "Other", "Checkpoint")),
            NameGroup(
                "Tensors and attributes",
                "",
                (
                    *("data_type", "literal_tensor", "packed_tensor", "unpacked_codes"),
                    *("require_form", "typed_attribute"),
                ),
            ),
            NameGroup(
                "Ask about a model",
                "",
                ("compute", "is_computed", "is_finite", "misfit", "narrowing", "saturates", "sum_of_dims"),
            ),
            NameGroup("Operators of one kind", "", ("RESHAPES", "GATHERING")),
            NameGroup("Edit a whole model", "", ("run_tool", "strip_descriptions")),
        ),
        "Types that they return",
    ),
}

INHERITED: Mapping[str, tuple[str, ...]] = {
    "Graph": (
        *("ir", "target", "opset", "opset_of", "imports_of", "main", "metadata", "functions", "scopes", "facts"),
        *("fresh", "is_free", "remember", "sites", "refusals", "remarks", "changed_nodes"),
    ),
}
"""The members that passes use of a base class that is not public."""

INTERNAL: Mapping[str, tuple[str, ...]] = {
    "Result": ("origin",),
    "StepRecord": ("stated",),
    "Validity": ("with_rejection",),
    "Exported": ("stage",),
    "ModuleInputs": ("described", "size", "named", "axes"),
    "VerifySpec": ("setup",),
    "DataSpec": ("title", "written", "of"),
    "ImageSpec": ("unusual",),
    "BenchSpec": ("used_clock",),
    "Graph": ("finish",),
    "Builder": ("edits", "is_idle"),
    "NodeSelector": ("read", "alternatives"),
    "TensorNames": ("read",),
    "Renames": ("read",),
    "RuleText": ("read",),
    "NodeText": ("read",),
}
"""The members of documented classes that only surgery itself calls."""

CONSTRUCTED = frozenset(
    {
        *("External", "RunOptions", "SurgeryError", "Refusal", "InputsSpec", "DataSpec", "TensorSpec", "SampleSpec"),
        *("ImageSpec", "VerifySpec", "AccuracySpec", "MetricLimit", "BenchSpec", "ModuleInputs", "ModuleInput"),
    }
)
"""The classes that the reader constructs, so that the parameters are shown."""
