"""Suggested pairs for checkpoints of renamed models: each one is right, which the elements show."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from surgery.features.frameworks.importing import Imported, import_weights
from surgery.features.frameworks.mapping import load

Arrays = dict[str, np.ndarray[Any, Any]]


def layer(place: str, *parts: str) -> Iterable[str]:
    for part in parts:
        yield from (f"{place}.{part}.weight", f"{place}.{part}.bias")


ATTENTION = ("self.query", "self.key", "self.value", "output.dense", "output.LayerNorm")
NAMES = [
    "bert.embeddings.word_embeddings.weight",
    *layer("bert.embeddings", "LayerNorm"),
    *(name for index in (0, 1) for name in layer(f"bert.encoder.layer.{index}.attention", *ATTENTION)),
    *(name for index in (0, 1) for name in layer(f"bert.decoder.layer.{index}.attention", *ATTENTION)),
    *(name for index in (0, 1) for name in layer(f"bert.decoder.layer.{index}.crossattention", *ATTENTION)),
    *layer("bert.pooler", "dense"),
    *layer("classifier", "dense"),
]


def held(names: Iterable[str]) -> Arrays:
    """Elements of [in, out]: all layers have the same dims, so only names show which tensor is whose."""
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=(4,) if name.endswith("bias") else (4, 4)).astype(np.float32) for name in names}


def model_of(arrays: Mapping[str, np.ndarray[Any, Any]], modules: Mapping[str, str] | None = None) -> onnx.ModelProto:
    """Sum up all initializers; `modules` are what an exporter recorded of the nodes that read them."""
    nodes, last = [], "x"
    for index, name in enumerate(arrays):
        nodes.append(onnx.helper.make_node("Add", [last, name], [last := f"v{index}"]))
        if modules and name in modules:
            scopes = str(["", modules[name], f"add_{index}"])
            nodes[-1].metadata_props.append(onnx.StringStringEntryProto(key="pkg.torch.onnx.name_scopes", value=scopes))
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, 4]) for name in ("x", last))
    tensors = [numpy_helper.from_array(np.zeros_like(array), name) for name, array in arrays.items()]
    graph = onnx.helper.make_graph(nodes, "g", [x], [y], tensors)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)


def suggested(tmp_path: Path, proto: onnx.ModelProto, checkpoint: Arrays) -> Imported:
    np.savez(tmp_path / "w.npz", **checkpoint)
    onnx.save(proto, tmp_path / "m.onnx")
    return import_weights(tmp_path / "m.onnx", [tmp_path / "w.npz"], layout="onnx")


def applied(tmp_path: Path, found: Imported) -> Arrays:
    """Apply the suggestions, and return the elements of the initializers that got any."""
    (tmp_path / "map.yaml").write_text(found.suggestions.document())
    made = import_weights(tmp_path / "m.onnx", [tmp_path / "w.npz"], mapping=load(tmp_path / "map.yaml"), layout="onnx")
    tensors = {one.target.name: one.source.tensors[0] for one in made.plan.assignments}
    elements = np.load(tmp_path / "w.npz")
    return {name: elements[tensor] for name, tensor in tensors.items()}


def tensorflow(name: str) -> str:
    name = re.sub(r"\.(\d+)\.", r"_\1.", name).replace(".", "/").replace("word_embeddings/weight", "word_embeddings")
    name = name.replace("LayerNorm/weight", "LayerNorm/gamma").replace("LayerNorm/bias", "LayerNorm/beta")
    return re.sub("/weight$", "/kernel", name)


def flax(name: str) -> str:
    name = name.replace(".", "/").replace("LayerNorm/weight", "LayerNorm/scale")
    return "params/" + re.sub("/weight$", "/kernel", name).replace("embeddings/kernel", "embeddings/embedding")


def short(name: str) -> str:
    return name.replace("encoder", "enc").replace("decoder", "dec").replace("attention", "attn")


def sides(name: str) -> str:
    return name.replace("bert.encoder.", "a.").replace("bert.decoder.", "b.")


RENAMED: dict[str, Callable[[str], str]] = {
    "another first module": lambda name: "module." + name,
    "several first modules": lambda name: "state.module." + name,
    "another name of the first module": lambda name: re.sub("^bert", "model", name),
    "no first module": lambda name: name.removeprefix("bert."),
    "two prefixes": sides,
    "two prefixes in a module": lambda name: "net." + sides(name),
    "TensorFlow": tensorflow,
    "TensorFlow, numbered outputs": lambda name: f"tf_model/{tensorflow(name)}:0",
    "Flax": flax,
    "one separator": lambda name: name.replace(".", "_"),
    "short words": short,
}


@pytest.mark.parametrize("rename", RENAMED.values(), ids=RENAMED)
def test_every_renamed_weight_is_suggested(tmp_path: Path, rename: Callable[[str], str]) -> None:
    arrays = held(NAMES)
    checkpoint = {rename(name): array for name, array in arrays.items()}
    got = applied(tmp_path, suggested(tmp_path, model_of(arrays), checkpoint))
    assert got.keys() == arrays.keys()
    assert [name for name in arrays if not np.array_equal(got[name], arrays[name])] == []


def test_weights_without_names_are_found_by_recorded_modules_after_a_prefix(tmp_path: Path) -> None:
    """PyTorch's exporter calls a transposed matrix `val_7`, and records the module of the node that reads it."""
    arrays = held(NAMES)
    unnamed = {name: f"val_{index}" for index, name in enumerate(arrays) if name.endswith("dense.weight")}
    modules = {new: name.rpartition(".")[0] for name, new in unnamed.items()}
    wanted = {unnamed.get(name, name): array for name, array in arrays.items()}
    checkpoint = {f"module.{name}": array for name, array in arrays.items()}
    found = suggested(tmp_path, model_of(wanted, modules), checkpoint)
    assert found.suggestions.prefixes == {"*": ("module.*", len(arrays) - len(unnamed))}
    assert {why for _, why in found.suggestions.single.values()} == {"the path of the node that reads it"}
    got = applied(tmp_path, found)
    assert [name for name in wanted if not np.array_equal(got[name], wanted[name])] == []


def test_modules_that_only_end_alike_are_not_suggested(tmp_path: Path) -> None:
    """The checkpoint has another head, whose dims and last names are the same."""
    encoder = [name for name in NAMES if ".encoder." in name]
    wanted = held([*encoder, *layer("pooler", "dense", "norm")])
    other = held([*encoder, *layer("cls.predictions.transform", "dense")])
    found = suggested(tmp_path, model_of(wanted), {f"module.{name}": array for name, array in other.items()})
    assert found.suggestions.prefixes.keys() == {"*"} and not found.suggestions.single
    assert applied(tmp_path, found).keys() == set(encoder)


def test_nothing_is_suggested_where_two_prefixes_fit_equally(tmp_path: Path) -> None:
    """Both towers have the same names after prefixes that say nothing."""
    parts = ("query", "key", "value", "dense")
    arrays = held([*layer("text.0", *parts), *layer("image.0", *parts)])
    renamed = {re.sub("text|image", lambda m: {"text": "p", "image": "q"}[m[0]], name): a for name, a in arrays.items()}
    assert not suggested(tmp_path, model_of(arrays), renamed).suggestions


def test_tensors_with_other_dims_are_not_suggested(tmp_path: Path) -> None:
    arrays = held(layer("net", "a", "b"))
    checkpoint = {f"module.{name}": np.zeros((7, *array.shape), np.float32) for name, array in arrays.items()}
    assert not suggested(tmp_path, model_of(arrays), checkpoint).suggestions


def test_names_that_already_fit_keep_their_tensors(tmp_path: Path) -> None:
    """The pattern for all other names would match them, too."""
    arrays = held([*layer("head", "a"), *layer("net", "b", "c", "d")])
    checkpoint = {name if name.startswith("head") else f"module.{name}": array for name, array in arrays.items()}
    found = suggested(tmp_path, model_of(arrays), checkpoint)
    assert found.suggestions.prefixes == {"*": ("module.*", 6)}
    assert found.suggestions.single["head.a.bias"] == (
        "head.a.bias",
        "keeps its name, which a pattern below also matches",
    )
    got = applied(tmp_path, found)
    assert all(np.array_equal(got[name], array) for name, array in arrays.items())


def test_a_pattern_that_would_match_a_constant_is_written_name_by_name(tmp_path: Path) -> None:
    """An exporter made up `val_1`, a single number, so no tensor is missing for it; the pattern would give it one."""
    arrays = held(layer("net", "b", "c"))
    proto = model_of(arrays | {"val_1": np.zeros(1, np.float32)})
    checkpoint = {f"module.{name}": array for name, array in arrays.items()} | {"module.val_1": np.ones(1, np.float32)}
    found = suggested(tmp_path, proto, checkpoint)
    assert not found.suggestions.prefixes
    assert found.suggestions.single["net.b.bias"] == ("module.net.b.bias", "the same name after another prefix")
    assert applied(tmp_path, found).keys() == arrays.keys()
