"""Run a single pass, as a recipe of one step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.engine.pipeline import runner
from surgery.engine.recipe.loader import single_step

if TYPE_CHECKING:
    from surgery.engine.pipeline.records import Result
    from surgery.model.storage.loading import Model


def run(model: Model, name: str, /, *, output: str | Path | None = None, force: bool = False, **options: Any) -> Result:
    """Run the pass `name` over a model with its options, verified, and write the result to `output` if it is ok.

        surgery.run("model.onnx", "set-dims", dims={"batch": 1}, output="out.onnx")

    Raises UsageError if the pass does not exist or an option is invalid, and otherwise the errors of `surgery.apply`. A
    negative verdict does not raise, nor does a pass that cannot do what it is asked to: look at `Result.ok`.
    """
    return runner.apply(model, single_step(name, options), output=output, force=force)
