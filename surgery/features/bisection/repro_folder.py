"""The folder of a repro: two models, inputs, outputs, a script, a README and a report."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from surgery.base.errors import OutputError, UsageError, WorkerError
from surgery.base.promises import Parity
from surgery.base.workers import Worker, WorkerRaised
from surgery.features.bisection.reproduction import Repro
from surgery.model import storage
from surgery.model.proto.extract import describe
from surgery.model.runtime.setup import provider_arguments
from surgery.verification.comparing.tolerance import Tolerance

if TYPE_CHECKING:
    import onnx

_ORIGINAL: Final = "original.onnx"
_STEP: Final = "step.yaml"
_REPORT: Final = "report.json"

_FILES = (
    _ORIGINAL,
    "changed.onnx",
    "original.onnx.data",
    "changed.onnx.data",
    "inputs.npz",
    "expected.npz",
    "actual.npz",
    "repro.py",
    "README.txt",
    _STEP,
    _REPORT,
)

_SCRIPT = '''\
"""Shows the difference with nothing but onnxruntime and numpy. {ending}"""

from pathlib import Path

import numpy as np
import onnxruntime as ort

folder, options = Path(__file__).resolve().parent, ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
{libraries}feed, models = dict(np.load(folder / "inputs.npz")), (folder / "original.onnx", folder / "changed.onnx")
expected, actual = (ort.InferenceSession(model, options, {providers}).run(None, feed)[0] for model in models)
{comparison}
'''

_ENDINGS = {
    "values": "It ends with an AssertionError.",
    "refused": "It ends with the error of the runtime.",
    "crash": "It crashes the process.",
    "hang": "It does not terminate.",
}


def check_folder(folder: Path, *, force: bool = False) -> None:
    """Raise OutputError unless a repro can be written to a folder, which must be empty unless `force` is set."""
    if folder.exists() and not folder.is_dir():
        raise OutputError("this is not a folder", where=str(folder), todo="name a folder to write")
    if not folder.parent.is_dir():
        raise OutputError(f"the folder {folder.parent} does not exist", where=str(folder), todo="create it first")
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise OutputError("the folder exists", where=str(folder), todo="name another one, or use --force")


def is_one(folder: Path) -> bool:
    """Return whether a folder has a repro."""
    return (folder / _ORIGINAL).is_file() and (folder / _REPORT).is_file()


def reduced(folder: Path) -> tuple[Path, Path | list[str]]:
    """Return the original model of a repro, and the failing step as a recipe. Raises UsageError."""
    if (folder / _STEP).is_file():
        return folder / _ORIGINAL, folder / _STEP
    where = folder / _REPORT  # older releases wrote only its name
    try:
        return folder / _ORIGINAL, [str(json.loads(where.read_text(encoding="utf-8"))["step"]["pass"])]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError("this is not the report of surgery bisect", where=str(where)) from error


def clear(folder: Path) -> None:
    """Remove the files of an older repro from a folder, and nothing else."""
    for name in _FILES:
        (folder / name).unlink(missing_ok=True)


def written(folder: Path) -> list[Path]:
    """List the files of a repro in a folder; the report is the last one."""
    return [path for name in _FILES if (path := folder / name).is_file()]


def write(
    repro: Repro, folder: Path, *, title: str = "", report: Mapping[str, Any] | None = None, step: str = ""
) -> bool:
    """Write a repro, and return whether running its script shows the difference.

    `title` is the first line of the README, `report` is added to the JSON, and `step` is the failing step as a recipe.
    Files of an older repro are replaced.
    """
    folder.mkdir(exist_ok=True)
    clear(folder)
    cut, shown = repro.cut, repro.shown
    name = cut.output
    expected = shown.expected[name]
    actual = expected if shown.actual is None else shown.actual[name]
    for model, value, file in ((cut.original, expected, _ORIGINAL), (cut.changed, actual, "changed.onnx")):
        storage.save(_declared(model, value), folder / file, repro.weights)
    _write_arrays(folder / "inputs.npz", cut.feed)
    _write_arrays(folder / "expected.npz", {name: expected})
    if shown.actual is not None:
        _write_arrays(folder / "actual.npz", {name: actual})
    (folder / "repro.py").write_text(_script(repro), encoding="utf-8")
    reproduced = _reproduces(repro, folder / "repro.py")
    facts = {
        "kind": shown.kind,
        "message": shown.message,
        "output": name,
        "nodes": {"original": repro.nodes[0], "changed": repro.nodes[1]},
        "reproduced": reproduced,
    }
    text = json.dumps({**(report or {}), "repro": facts}, indent=2, ensure_ascii=False)
    if step:
        (folder / _STEP).write_text(step, encoding="utf-8")
    (folder / _REPORT).write_text(text + "\n", encoding="utf-8")
    (folder / "README.txt").write_text(_readme(repro, title, reproduced, bool(step)), encoding="utf-8")
    return reproduced


def _declared(model: onnx.ModelProto, value: Any) -> onnx.ModelProto:
    """Declare the type of the output, which the checker requires."""
    result = deepcopy(model)
    result.graph.output[0].CopyFrom(describe(result.graph.output[0].name, value))
    return result


def _write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write a .npz file. Unlike `numpy.savez`, this accepts any name, and equal arrays give equal bytes."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, _storable(value), allow_pickle=False)


def _storable(value: Any) -> Any:
    """Convert strings to a fixed-width type, because objects would have to be pickled."""
    return value.astype(str) if value.dtype.kind == "O" else value


def _script(repro: Repro) -> str:
    libraries = "".join(
        f"options.register_custom_ops_library({str(path.absolute())!r})\n" for path in repro.setup.libraries
    )
    providers = provider_arguments(repro.setup.providers)
    return _SCRIPT.format(
        ending=_ENDINGS[repro.shown.kind], libraries=libraries, providers=providers, comparison=_comparison(repro)
    )


def _comparison(repro: Repro) -> str:
    """Return the source of the weakest assertion that fails."""
    expected = repro.shown.expected[repro.cut.output]
    actual = expected if repro.shown.actual is None else repro.shown.actual[repro.cut.output]
    if expected.dtype == actual.dtype and expected.dtype.kind == "f" and repro.promise is not Parity.EXACT:
        bounds = Tolerance.of(expected.dtype)
        scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
        rtol, atol = float(f"{bounds.rtol:.2g}"), float(f"{bounds.atol * scale:.2g}")
        if expected.shape != actual.shape or not np.allclose(actual, expected, rtol, atol, equal_nan=True):
            return f"np.testing.assert_allclose(actual, expected, rtol={rtol}, atol={atol})"
    same = expected.shape == actual.shape and expected.dtype == actual.dtype and _equal(expected, actual)
    if same and repro.shown.kind == "values":
        # For example 0.0 and -0.0, which are equal as numbers.
        return 'assert actual.tobytes() == expected.tobytes(), "the bits differ"'
    return "np.testing.assert_array_equal(actual, expected, strict=True)"


def _equal(expected: Any, actual: Any) -> bool:
    return np.array_equal(expected, actual, equal_nan=expected.dtype.kind in "fc")


def _reproduces(repro: Repro, script: Path) -> bool:
    """Run the script in a worker, and return whether it ends as described."""
    kind = repro.shown.kind
    with Worker(timeout=repro.timeout, preload=("onnxruntime",)) as worker:
        try:
            worker.call("surgery.features.bisection.repro_script:run", path=str(script.absolute()))
        except WorkerRaised as error:
            return kind == ("values" if error.type_name == "AssertionError" else "refused")
        except WorkerError as error:
            return kind == ("hang" if error.signal == "timeout" else "crash")
    return False


def _readme(repro: Repro, title: str, reproduced: bool, has_step: bool) -> str:
    before, after = repro.nodes
    lines = [
        title,
        "",
        f"original.onnx (nodes: {before}) was rewritten to changed.onnx (nodes: {after}), which is wrong:",
        f"    {repro.shown.message}",
        "",
        "inputs.npz      the inputs of both: values that the original model has there",
        "expected.npz    the outputs of original.onnx",
        *(["actual.npz      the outputs of changed.onnx"] if repro.shown.actual is not None else []),
        f"repro.py        python repro.py runs both. {_ENDINGS[repro.shown.kind]}",
        *([] if reproduced else ["                When it was tested here, it did not."]),
        *(["step.yaml       the step as a recipe; surgery open FOLDER shows what it does"] if has_step else []),
        "report.json     how the rewrite was found",
        "",
    ]
    return "\n".join(lines)
