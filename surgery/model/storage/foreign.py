"""Recognize files that are not ONNX models, first by their initial bytes, then by name, and suggest a remedy."""

from __future__ import annotations

import json
import re
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from surgery.model.storage import foreign_messages
from surgery.model.storage.foreign_messages import Foreign
from surgery.model.storage.text_formats import is_text

HEAD: Final = 1 << 16
"""Number of bytes examined at the start of a file."""


_TORCH: Final = "load it in PyTorch and export it with torch.onnx.export(model, args, 'model.onnx', dynamo=True)"
_AGAIN: Final = "fetch or export it again"
_TFLITE: Final = Foreign(
    "a TensorFlow Lite model", f"convert it with '{foreign_messages.TF2ONNX} --tflite MODEL --output model.onnx'"
)
_KERAS: Final = Foreign("a Keras model", "load it in Keras 3 and call model.export('model.onnx', format='onnx')")
_HDF5: Final = Foreign(
    "an HDF5 file, perhaps a Keras model", "load it in Keras 3 and call model.export('model.onnx', format='onnx')"
)
_CHECKPOINT: Final = Foreign("a PyTorch checkpoint, which contains weights, not a graph", _TORCH)
_SCRIPT: Final = Foreign("a TorchScript program", _TORCH)
_EXPORTED: Final = Foreign(
    "an exported program of PyTorch", "convert it with 'surgery export PROGRAM.pt2 -o model.onnx'"
)
_PICKLE: Final = Foreign("a Python pickle, perhaps a PyTorch checkpoint or a scikit-learn model", "export it to ONNX")
_WEIGHTS: Final = "export the model that it belongs to; 'surgery passes import-weights' shows how to import them"
_SAFETENSORS: Final = Foreign("a safetensors file, which contains weights, not a graph", _WEIGHTS)
_GGUF: Final = Foreign("a GGUF file, which contains weights, not a graph", "export the original model to ONNX")
_OPENVINO: Final = Foreign("an OpenVINO model", "export the model it was converted from to ONNX")
_TENSORRT: Final = Foreign("a TensorRT engine, which is compiled for one GPU", "give the .onnx file it was built from")
_PMML: Final = Foreign("a PMML model", "export the model it was made from, with skl2onnx or onnxmltools")
_POINTER: Final = Foreign("a git-lfs pointer, not the model itself", "run 'git lfs pull'")
_PAGE: Final = Foreign(
    "an HTML page, not a model", "use the link that downloads the file: with /resolve/ or /raw/ instead of /blob/"
)
_NUMPY: Final = Foreign("a file of NumPy arrays", "name a .onnx file")
_ORT_OUTPUT: Final = (
    "the ORT format",
    "write an .onnx file, and convert it with 'python -m onnxruntime.tools.convert_onnx_models_to_ort'",
)

FORMATS_OF_OUTPUTS: Final[dict[str, tuple[str, str]]] = {
    ".ort": _ORT_OUTPUT,
    **dict.fromkeys(
        (".tflite", ".pt", ".pth", ".pt2", ".h5", ".keras", ".gguf", ".mlmodel", ".engine", ".zip", ".gz"),
        ("this format", "name a file that ends in .onnx"),
    ),
}
"""Extensions of outputs that denote another format than the written one."""

_PACKED: Final = {
    b"\x1f\x8b": ("gzip", "gunzip"),
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ": ("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
}
"""The first bytes of compressed files, with the compressor and the command that decompresses."""

_MARKS: Final = (
    (0, b"version https://git-lfs", _POINTER),
    (4, b"TFL3", _TFLITE),
    (0, b"\x89HDF\r\n\x1a\n", _HDF5),
    (0, b"GGUF", _GGUF),
    (0, b"ptrt", _TENSORRT),
    (0, b"ftrt", _TENSORRT),
    (0, b"\x93NUMPY", _NUMPY),
)


def recognized(path: Path, data: memoryview) -> Foreign | None:
    """Return the format of a file with these bytes that could not be read as a model; None if it is unknown."""
    head = bytes(data[:HEAD])
    for offset, mark, found in _MARKS:
        if head[offset : offset + len(mark)] == mark:
            return found
    for look in (_archive, _pickled, _safetensors, _text):
        answer = look(path, head)
        if answer is not None:
            return answer
    return foreign_messages.recognized(data) or _by_name(path)


def recognized_folder(path: Path) -> Foreign | None:
    """Return the format of a folder that is a model of another format; None for a plain folder."""
    if (path / "saved_model.pb").is_file():
        return Foreign("a TensorFlow SavedModel", foreign_messages.SAVED.todo.replace("FOLDER", str(path)))
    if (path / "Manifest.json").is_file() and path.suffix == ".mlpackage":
        return foreign_messages.COREML
    if (path / "__model__").is_file() or (path / "inference.pdmodel").is_file():
        return foreign_messages.PADDLE
    return None


def _archive(path: Path, head: bytes) -> Foreign | None:
    if head.startswith(b"PK\x03\x04"):
        return _zipped(path)
    for mark, (name, unpack) in _PACKED.items():
        if head.startswith(mark):
            todo = f"unpack it first, with '{unpack} {path.name}', or 'tar -xf {path.name}' if it is a tar"
            return Foreign(f"a file compressed by {name}", todo)
    if head[257:262] == b"ustar":
        return Foreign(f"a tar archive{_inside(_tar_names(path))}", f"unpack it first, with 'tar -xf {path.name}'")
    return None


def _zipped(path: Path) -> Foreign:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return Foreign("a zip archive that is truncated or damaged", _AGAIN)
    inner = {name.partition("/")[2] or name for name in names}
    tests: tuple[tuple[Callable[[str], bool], Foreign], ...] = (
        (lambda name: name == "config.json" and "model.weights.h5" in inner, _KERAS),
        (lambda name: name.startswith("code/") or name == "constants.pkl", _SCRIPT),
        (lambda name: name in ("serialized_exported_program.json", "models/model.json"), _EXPORTED),
        (lambda name: name == "data.pkl", _CHECKPOINT),
        (lambda name: name.endswith(".npy"), _NUMPY),
    )
    for fits, found in tests:
        if any(map(fits, inner)):
            return found
    todo = f"unpack it first, with 'unzip {path.name}'{_chained(names, path)}"
    return Foreign(f"a zip archive{_inside(names)}", todo)


def _chained(names: list[str], path: Path) -> str:
    models = [name for name in names if name.endswith(".onnx")]
    return f", or pass 'zip://{models[0]}::{path.absolute()}'" if models else ""


def _tar_names(path: Path) -> list[str]:
    try:
        with tarfile.open(path) as archive:
            return archive.getnames()
    except (OSError, tarfile.TarError):
        return []


def _inside(names: list[str]) -> str:
    models = [name for name in names if name.endswith(".onnx")]
    return f" with {models[0]} in it" if models else ""


def _pickled(path: Path, head: bytes) -> Foreign | None:
    # Protocols 2 to 5 begin with their number and end with a period; the old format of torch.save begins with a
    # magic number in a pickle.
    if re.match(rb"\x80[\x02-\x05]", head) is None or path.suffix in (".onnx", ""):
        return _PICKLE if re.match(rb"\x80[\x02-\x05](\x95|\x8a\x0a|c|\}|ctorch|\x8c)", head) else None
    return _CHECKPOINT if path.suffix in (".pt", ".pth", ".bin", ".ckpt") else _PICKLE


def _safetensors(path: Path, head: bytes) -> Foreign | None:
    length = int.from_bytes(head[:8], "little")
    begins = head[8:9] == b"{" and 2 <= length < 100_000_000 and length % 8 in range(8)
    return _SAFETENSORS if begins and re.match(rb'\{\s*"', head[8:]) else None


def _text(path: Path, head: bytes) -> Foreign | None:
    """Return the format of a text file; None if it is not text."""
    if not is_text(head[:1024]):
        return None
    start = head.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    lower = start[:2000].lower()
    if lower.startswith(("<!doctype html", "<html")):
        return _PAGE
    if start.startswith(("<?xml", "<net", "<PMML")):
        return _markup(start)
    if start.startswith(("{", "[")):
        return _braces(path, start)
    if re.search(r"(^|<)\s*ir_version\s*:", start) is not None:
        kind, suffix = ("ONNX text", ".onnxtxt") if start[0] == "<" else ("a model as protobuf text", ".textproto")
        return Foreign(f"{kind}, not a binary model", f"give the file the extension {suffix}")
    if path.suffix in (".yaml", ".yml") or re.match(r"(---|recipe:|[a-z_]+:\s)", start) is not None:
        return Foreign("a YAML file, not an ONNX model", "the recipe comes first, then the model")
    return Foreign("a text file, not an ONNX model", "name a .onnx file")


def _markup(start: str) -> Foreign:
    if re.search(r"<net\s", start):
        return _OPENVINO
    return _PMML if "<PMML" in start else Foreign("an XML file, not an ONNX model", "name a .onnx file")


def _braces(path: Path, start: str) -> Foreign:
    if '"irVersion"' in start or '"ir_version"' in start:
        return Foreign("an ONNX model as JSON, not a binary one", "give the file the extension .json or .onnxjson")
    if '"weight_map"' in start:
        return Foreign("the index of a sharded checkpoint, which contains no graph", "export its model to ONNX")
    if '"modelTopology"' in start:
        return Foreign("a TensorFlow.js model", "export the model it was converted from to ONNX")
    try:
        json.loads(start)
        whole = True
    except ValueError:
        whole = len(start) >= HEAD // 2
    return Foreign(f"a JSON file{'' if whole else ' that is truncated'}, not an ONNX model", "name a .onnx file")


_EXTENSIONS: Final = {
    ".tflite": _TFLITE,
    ".h5": _HDF5,
    ".hdf5": _HDF5,
    ".keras": _KERAS,
    ".pt2": _EXPORTED,
    ".safetensors": _SAFETENSORS,
    ".gguf": _GGUF,
    ".mlmodel": foreign_messages.COREML,
    ".engine": _TENSORRT,
    ".plan": _TENSORRT,
    ".trt": _TENSORRT,
    ".pdmodel": foreign_messages.PADDLE,
    ".pdiparams": foreign_messages.PADDLE,
    ".bin": Foreign("a binary file, perhaps weights of OpenVINO or PyTorch", "name a .onnx file"),
    ".pb": Foreign("a protobuf message, perhaps of TensorFlow", foreign_messages.FROZEN.todo),
}


def _by_name(path: Path) -> Foreign | None:
    """Return the format by the name, if the content is inconclusive."""
    found = foreign_messages.SAVED if path.name == "saved_model.pb" else _EXTENSIONS.get(path.suffix.lower())
    return None if found is None else Foreign(f"not an ONNX model, but, judging by its name, {found.what}", found.todo)
