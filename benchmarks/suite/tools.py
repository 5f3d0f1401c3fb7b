"""The compared tools, each called as its own documentation recommends."""

from __future__ import annotations

import importlib.metadata
import sys
from dataclasses import dataclass
from pathlib import Path

FROM, TO, RECIPE = "{from}", "{to}", "{recipe}"

_END = """recipe: {name}-end
about: The shipped recipe {name}, verified once at its end.
verify: {{mode: end}}
steps:
  - use: {name}
expect: {{signature: unchanged}}
"""


@dataclass(frozen=True)
class Tool:
    """A program that reads one model and writes another."""

    name: str
    package: str
    arguments: tuple[str, ...]
    recipe: str = ""
    """For surgery, the text of the recipe that the arguments name."""

    @property
    def is_peer(self) -> bool:
        """Whether it is a tool other than surgery."""
        return self.package != "onnx-surgery"

    @property
    def version(self) -> str:
        """The installed version; empty if it is not installed."""
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return ""

    def command(self, source: Path, target: Path) -> list[str]:
        """Return the command to run; the recipe, if any, is written next to the target."""
        recipe = target.with_suffix(".yaml")
        if self.recipe:
            recipe.write_text(self.recipe)
        places = {FROM: str(source), TO: str(target), RECIPE: str(recipe)}
        return [sys.executable, *(places.get(argument, argument) for argument in self.arguments)]


PEERS = (
    Tool("onnxsim", "onnxsim", ("-m", "onnxsim", FROM, TO)),
    Tool("onnxslim", "onnxslim", ("-m", "onnxslim", FROM, TO)),
    Tool("onnxoptimizer", "onnxoptimizer", ("-m", "onnxoptimizer", FROM, TO, "--fixed_point")),
    Tool("onnxscript", "onnxscript", ("-m", "suite.optimize", "onnxscript", FROM, TO)),
    Tool("ort-extended", "onnxruntime", ("-m", "suite.optimize", "ort-extended", FROM, TO)),
)


def surgery(recipe: str) -> Tool:
    """Return surgery with a recipe, given by name or path; `NAME:end` verifies a shipped one once at its end."""
    name, _, mode = recipe.partition(":")
    given = str(Path(recipe).resolve()) if Path(recipe).is_file() else recipe
    command = ("-m", "surgery", "apply")
    if mode == "end":
        return Tool(f"surgery {recipe}", "onnx-surgery", (*command, RECIPE, FROM, "-o", TO), _END.format(name=name))
    return Tool(f"surgery {recipe}", "onnx-surgery", (*command, given, FROM, "-o", TO))
