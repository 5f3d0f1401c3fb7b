"""Checkpoints whose rows are in another order than in the model, which dims do not show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper
from support import torch_files as t

from surgery.features.frameworks import mapping
from surgery.features.frameworks.importing import Imported, import_weights
from surgery.interface import commands as cli

RNG = np.random.default_rng(0)
WIDTH, HIDDEN, LENGTH = 3, 4, 5
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}

Array = np.ndarray[Any, Any]


def floats(*dims: int) -> Array:
    return RNG.normal(size=dims).astype(np.float32)


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def step(kind: str, x: Array, h: Array, c: Array, state: dict[str, Array], end: str) -> tuple[Array, Array]:
    """One step as the documentation of torch.nn.LSTM, GRU and RNN defines it."""
    inner = state[f"weight_ih_{end}"] @ x + state[f"bias_ih_{end}"]
    hidden = state[f"weight_hh_{end}"] @ h + state[f"bias_hh_{end}"]
    if kind == "RNN":
        return np.tanh(inner + hidden), c
    if kind == "LSTM":
        i, f, g, o = np.split(inner + hidden, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c
    (ri, zi, ni), (rh, zh, nh) = np.split(inner, 3), np.split(hidden, 3)
    z = sigmoid(zi + zh)
    return (1 - z) * np.tanh(ni + sigmoid(ri + rh) * nh) + z * h, c


def run(kind: str, x: Array, state: dict[str, Array], end: str) -> list[Array]:
    h = c = np.zeros(HIDDEN, np.float32)
    outputs = []
    for one in x:
        h, c = step(kind, one, h, c, state, end)
        outputs.append(h)
    return outputs


def state_of(kind: str, both: bool) -> dict[str, Array]:
    rows = GATES[kind] * HIDDEN
    dims = {"weight_ih": (rows, WIDTH), "weight_hh": (rows, HIDDEN), "bias_ih": (rows,), "bias_hh": (rows,)}
    return {f"{name}_l0{end}": floats(*of) for end in ("", "_reverse")[: 1 + both] for name, of in dims.items()}


def recurrent(kind: str, both: bool = False, after: int = 1) -> onnx.ModelProto:
    rows, ways = GATES[kind] * HIDDEN, 1 + both
    attributes = 'direction="bidirectional", ' if both else ""
    attributes += f"linear_before_reset={after}, " if kind == "GRU" else ""
    proto = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 21]>
        g (float[{LENGTH},1,{WIDTH}] x) => (float[{LENGTH},{ways},1,{HIDDEN}] y) {{
            y = {kind} <{attributes}hidden_size={HIDDEN}> (x, W, R, B)
        }}
    """)
    dims = {"W": (ways, rows, WIDTH), "R": (ways, rows, HIDDEN), "B": (ways, 2 * rows)}
    proto.graph.initializer.extend(numpy_helper.from_array(np.zeros(of, np.float32), n) for n, of in dims.items())
    return proto


def imported(tmp_path: Path, proto: onnx.ModelProto, checkpoint: Path, text: str = "", **options: Any) -> Imported:
    onnx.save(proto, tmp_path / "m.onnx")
    (tmp_path / "out.onnx").unlink(missing_ok=True)
    (tmp_path / "map.yaml").write_text(text)
    said = mapping.load(tmp_path / "map.yaml") if text else None
    return import_weights(tmp_path / "m.onnx", [checkpoint], tmp_path / "out.onnx", mapping=said, **options)


def misfits(found: Imported) -> dict[str, str]:
    assert not found.written
    return {one.name: one.message for one in found.plan.misfits if one.kind == "layout"}


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("both", [False, True])
def test_recurrent_layers_compute_what_pytorch_does(tmp_path: Path, kind: str, both: bool) -> None:
    """The suggested mapping file is complete, and gates are in the order of ONNX afterwards."""
    state = state_of(kind, both)
    path = t.saved(tmp_path / "w.pt", {f"rnn.{name}": array for name, array in state.items()})
    onnx.save(recurrent(kind, both), tmp_path / "m.onnx")
    command = ["import-weights", str(tmp_path / "m.onnx"), str(path)]
    assert cli.main([*command, "--suggest", str(tmp_path / "map.yaml")]) == 1
    assert cli.main([*command, "--map", str(tmp_path / "map.yaml"), "-o", str(tmp_path / "out.onnx")]) == 0
    x = floats(LENGTH, WIDTH)
    expected = [run(kind, x, state, "l0")]
    if both:
        expected.append(run(kind, x[::-1], state, "l0_reverse")[::-1])
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx")
    y = session.run(None, {"x": x[:, None]})[0]
    np.testing.assert_allclose(y[:, :, 0], np.stack(expected, axis=1), rtol=1e-5, atol=1e-6)


def test_gates_of_other_names_are_required(tmp_path: Path) -> None:
    """A safetensors file may come from any framework; its names or the mapping show the order."""
    state = state_of("LSTM", False)
    plain = {"W": state["weight_ih_l0"], "R": state["weight_hh_l0"], "b": state["bias_ih_l0"], "c": state["bias_hh_l0"]}
    np.savez(tmp_path / "w.npz", **plain)
    text = "tensors:\n  W: {from: W%s}\n  R: {from: R%s}\n  B: {concat: [b, c]%s}\n"
    unclear = misfits(imported(tmp_path, recurrent("LSTM"), tmp_path / "w.npz", text % ("", "", "")))
    assert unclear.keys() == {"W", "R", "B"}
    assert "add 'gates: torch' or 'gates: onnx' to its entry in the mapping" in unclear["W"]
    results = {}
    for order in ("torch", "onnx"):
        assert imported(tmp_path, recurrent("LSTM"), tmp_path / "w.npz", text % ((f", gates: {order}",) * 3)).ok
        held = {one.name: numpy_helper.to_array(one) for one in onnx.load(tmp_path / "out.onnx").graph.initializer}
        results[order] = held["W"][0]
    np.testing.assert_array_equal(results["onnx"], plain["W"])
    i, f, g, o = np.split(plain["W"], 4)
    np.testing.assert_array_equal(results["torch"], np.concatenate([i, o, f, g]))


def test_weights_exported_from_a_model_keep_the_order_of_onnx(tmp_path: Path) -> None:
    state = {"W": floats(1, 16, WIDTH), "R": floats(1, 16, HIDDEN), "B": floats(1, 32)}
    assert imported(tmp_path, recurrent("LSTM"), t.saved(tmp_path / "w.pt", state)).ok
    held = {one.name: numpy_helper.to_array(one) for one in onnx.load(tmp_path / "out.onnx").graph.initializer}
    for name, array in state.items():
        np.testing.assert_array_equal(held[name], array)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("form", ["whole", "flat"])
def test_joined_weights_are_reordered_by_direction_and_by_bias(
    tmp_path: Path, kind: str, both: bool, form: str
) -> None:
    """One tensor for each initializer, with an axis of directions or without, and in the order of PyTorch."""
    state, ways = state_of(kind, both), ("", "_reverse")[: 1 + both]
    parts = {"W": ["weight_ih"], "R": ["weight_hh"], "B": ["bias_ih", "bias_hh"]}
    joined = {
        name: np.stack([np.concatenate([state[f"{of}_l0{end}"] for of in kinds]) for end in ways])
        for name, kinds in parts.items()
    }
    if form == "flat":
        joined = {name: array.reshape(-1, *array.shape[2:]) for name, array in joined.items()}
    np.savez(tmp_path / "w.npz", **joined)
    text = "tensors:" + "".join(f"\n  {name}: {{from: {name}, gates: torch}}" for name in joined)
    found = imported(tmp_path, recurrent(kind, both), tmp_path / "w.npz", text)
    assert found.ok and all(one.reordered for one in found.plan.assignments)
    x = floats(LENGTH, WIDTH)
    expected = [run(kind, x, state, "l0")]
    if both:
        expected.append(run(kind, x[::-1], state, "l0_reverse")[::-1])
    y = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"x": x[:, None]})[0]
    np.testing.assert_allclose(y[:, :, 0], np.stack(expected, axis=1), rtol=1e-5, atol=1e-6)


def test_gates_of_a_transposed_kernel(tmp_path: Path) -> None:
    """Keras has the order of PyTorch, and [in, gates * hidden]."""
    state = state_of("LSTM", False)
    np.savez(tmp_path / "w.npz", kernel=state["weight_ih_l0"].T)
    text = "tensors: {W: {from: kernel, transpose: true, gates: torch}}\nkeep: [R, B]"
    assert imported(tmp_path, recurrent("LSTM"), tmp_path / "w.npz", text).ok
    held = {one.name: numpy_helper.to_array(one) for one in onnx.load(tmp_path / "out.onnx").graph.initializer}
    i, f, g, o = np.split(state["weight_ih_l0"], 4)
    np.testing.assert_array_equal(held["W"][0], np.concatenate([i, o, f, g]))


def test_gates_that_cannot_be_reordered_are_named(tmp_path: Path) -> None:
    """Names of PyTorch with the dims of ONNX, other dims, and an initializer with a wrong number of directions."""
    state = state_of("LSTM", False)
    whole = t.saved(tmp_path / "w.pt", {"weight_ih_l0": state["weight_ih_l0"][None]})
    text = "tensors: {W: %s}\nkeep: [R, B]"
    asked = "add 'gates: torch' or 'gates: onnx' to its entry in the mapping"
    assert asked in misfits(imported(tmp_path, recurrent("LSTM"), whole, text % "weight_ih_l0"))["W"]
    np.savez(tmp_path / "w.npz", w=state["weight_ih_l0"].reshape(4, HIDDEN, WIDTH))
    assert (
        asked
        in misfits(imported(tmp_path, recurrent("LSTM"), tmp_path / "w.npz", text % "{from: w, reshape: true}"))["W"]
    )
    proto = recurrent("LSTM")
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((1, 15, WIDTH), np.float32), "W"))
    np.savez(tmp_path / "w.npz", w=floats(1, 15, WIDTH))
    wrong = misfits(imported(tmp_path, proto, tmp_path / "w.npz", text % "{from: w, gates: torch}"))
    assert wrong == {"W": "the dims [1,15,3] in the model are not those of W of LSTM"}


def test_gates_of_weights_in_another_type(tmp_path: Path) -> None:
    """A Cast between the initializer and the node changes nothing."""
    state = state_of("LSTM", False)
    proto = recurrent("LSTM")
    proto.graph.node[0].input[1] = "cast"
    proto.graph.node.insert(0, onnx.helper.make_node("Cast", ["W"], ["cast"], to=1))
    zeros = np.zeros((1, 4 * HIDDEN, WIDTH), np.float16)
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(zeros, "W"))
    path = t.saved(tmp_path / "w.pt", {"weight_ih_l0": state["weight_ih_l0"]})
    found = imported(tmp_path, proto, path, "tensors: {W: weight_ih_l0}\nkeep: [R, B]")
    assert found.ok and found.plan.assignments[0].reordered == ("gates of LSTM in the order of ONNX",)


def test_recurrent_weights_that_would_compute_something_else(tmp_path: Path) -> None:
    state = state_of("GRU", False)
    path = t.saved(tmp_path / "w.pt", state)
    text = "tensors: {W: weight_ih_l0, R: weight_hh_l0, B: {concat: [%s]}}"
    good = text % "bias_ih_l0, bias_hh_l0"
    assert imported(tmp_path, recurrent("GRU"), path, good).ok
    before = misfits(imported(tmp_path, recurrent("GRU", after=0), path, good))
    assert before.keys() == {"W", "R", "B"} and "linear_before_reset is 0" in before["W"]
    order = misfits(imported(tmp_path, recurrent("GRU"), path, text % "bias_hh_l0, bias_ih_l0"))
    assert order == {"B": "B of GRU consists of bias_ih_l*, bias_hh_l*, in this order"}
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[1,12] a) => (float[1,3] y) <float[12,3] x> '
        "{ y = MatMul(a, x) }"
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.zeros((12, 3), np.float32), "x"))
    gates = misfits(imported(tmp_path, proto, path, "tensors: {x: {from: weight_ih_l0, gates: torch}}"))
    assert gates == {"x": "'gates' is for the weights of LSTM, GRU and RNN nodes, and no such node reads it"}


# Rotary embeddings: a score is the product of a rotated query with a rotated key

HEADS, SIZE = 2, 6
HALF = SIZE // 2
ANGLES = np.array([[0.3, 1.1, 2.0]], np.float32)


def halves(heads: int) -> onnx.ModelProto:
    """Rotate the two halves of each head, as the exports of Hugging Face's LLaMA do."""
    proto = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 21]>
        g (float[1,6] x) => (float[{heads},{SIZE}] y)
        <int64[2] dims = {{{heads}, {SIZE}}}, int64[1] start = {{0}}, int64[1] middle = {{{HALF}}},
         int64[1] end = {{{SIZE}}}, int64[1] last = {{1}}> {{
            q = MatMul(x, proj)
            h = Reshape(q, dims)
            first = Slice(h, start, middle, last)
            second = Slice(h, middle, end, last)
            n = Neg(second)
            turned = Concat<axis=1>(n, first)
            c = Concat<axis=1>(cos, cos)
            s = Concat<axis=1>(sin, sin)
            one = Mul(h, c)
            other = Mul(turned, s)
            y = Add(one, other)
        }}
    """)
    tensors = {"proj": np.zeros((6, heads * SIZE), np.float32), "cos": np.cos(ANGLES), "sin": np.sin(ANGLES)}
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in tensors.items())
    return proto


def rotated_pairs(q: Array) -> Array:
    """Rotate neighboring elements, as the original LLaMA and llama.cpp do."""
    complex_ = (q[..., 0::2] + 1j * q[..., 1::2]) * np.exp(1j * ANGLES)
    return np.stack([complex_.real, complex_.imag], axis=-1).reshape(q.shape)


def gguf_file(path: Path, tensors: dict[str, Array], architecture: str = "llama") -> Path:
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    for name, array in tensors.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def in_pairs(y: Array, neighbors: bool) -> Array:
    """The elements of a head as its rotated pairs, whichever elements form a pair."""
    return y.reshape(-1, HALF, 2) if neighbors else y.reshape(-1, 2, HALF).swapaxes(1, 2)


@pytest.mark.parametrize(("role", "heads"), [("q", HEADS), ("k", 1)])
def test_llama_of_gguf_is_permuted_to_halves(tmp_path: Path, role: str, heads: int) -> None:
    """Each head of Q and K has the same pairs as in llama.cpp, rotated by the same angles."""
    weight, x = floats(heads * SIZE, 6), floats(1, 6)
    path = gguf_file(tmp_path / "w.gguf", {f"blk.0.attn_{role}.weight": weight})
    text = f"tensors: {{proj: blk.0.attn_{role}.weight}}\nkeep: [cos, sin]"
    found = imported(tmp_path, halves(heads), path, text)
    assert found.ok and found.plan.assignments[0].reordered == (f"rotary halves of {heads} heads",)
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx")
    y = session.run(None, {"x": x})[0]
    expected = rotated_pairs((x @ weight.T).reshape(heads, SIZE))
    np.testing.assert_allclose(in_pairs(y, False), in_pairs(expected, True), rtol=1e-5, atol=1e-6)


def test_a_rotation_that_is_not_known_is_required(tmp_path: Path) -> None:
    weight = floats(HEADS * SIZE, 6)
    text = "tensors: {proj: blk.0.attn_q.weight}\nkeep: [cos, sin]\n"
    other = gguf_file(tmp_path / "w.gguf", {"blk.0.attn_q.weight": weight}, "other")
    unclear = misfits(imported(tmp_path, halves(HEADS), other, text))
    assert "not known for the architecture 'other'; add 'rotary: {checkpoint: pairs}'" in unclear["proj"]
    pairs = np.concatenate([weight[0::2].reshape(HEADS, HALF, 6), weight[1::2].reshape(HEADS, HALF, 6)], axis=1)
    for order, expected in (("halves", weight), ("pairs", pairs.reshape(weight.shape))):
        assert imported(tmp_path, halves(HEADS), other, f"{text}rotary: {{checkpoint: {order}}}").ok
        held = {one.name: numpy_helper.to_array(one) for one in onnx.load(tmp_path / "out.onnx").graph.initializer}
        np.testing.assert_array_equal(held["proj"], expected.T)
    # Qwen2 is not permuted by the converters.
    qwen = gguf_file(tmp_path / "q.gguf", {"blk.0.attn_q.weight": weight}, "qwen2")
    found = imported(tmp_path, halves(HEADS), qwen, text)
    assert found.ok and not found.plan.assignments[0].reordered


def test_the_original_llama_needs_the_number_of_heads(tmp_path: Path) -> None:
    weight = floats(HEADS * SIZE, 6)
    path = t.saved(tmp_path / "w.pt", {"layers.0.attention.wq.weight": weight})
    text = "tensors: {proj: layers.0.attention.wq.weight}\nkeep: [cos, sin]\n"
    unclear = misfits(imported(tmp_path, halves(HEADS), path, text))
    assert "add 'rotary: {heads: N, kv_heads: N}' to the mapping" in unclear["proj"]
    odd = misfits(imported(tmp_path, halves(HEADS), path, f"{text}rotary: {{heads: 5}}"))
    assert "12 rows, which are not 5 heads" in odd["proj"]
    found = imported(tmp_path, halves(HEADS), path, f"{text}rotary: {{heads: 2}}")
    assert found.ok and found.plan.assignments[0].reordered == ("rotary halves of 2 heads",)
    hugging_face = t.saved(tmp_path / "h.pt", {"model.layers.0.self_attn.q_proj.weight": weight})
    text = "tensors: {proj: model.layers.0.self_attn.q_proj.weight}\nkeep: [cos, sin]\n"
    found = imported(tmp_path, halves(HEADS), hugging_face, text)
    assert found.ok and not found.plan.assignments[0].reordered


def rotating_pairs(name: str = "proj", reading: str = "MatMul(x, {})") -> onnx.ModelProto:
    proto = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 23]>
        g (float[1,1,6] x, float[1,1,2] c, float[1,1,2] s) => (float[1,1,8] y) {{
            q = {reading.format("proj")}
            y = RotaryEmbedding <interleaved=1, num_heads=2> (q, c, s)
        }}
    """)
    for node in proto.graph.node:
        node.input[:] = [name if one == "proj" else one for one in node.input]
    proto.graph.initializer.append(numpy_helper.from_array(np.zeros((6, 8), np.float32), name))
    return proto


def to_pairs(weight: Array) -> Array:
    """The rows of two heads of 4, of which the halves were rotated."""
    return weight[[0, 2, 1, 3, 4, 6, 5, 7]]


@pytest.mark.parametrize("kind", ["[out, in]", "[in, out]"])
def test_the_outputs_are_reordered_in_either_layout(tmp_path: Path, kind: str) -> None:
    weight = floats(8, 6)
    name = "layers.0.self_attn.q_proj.weight"
    np.savez(tmp_path / "w.npz", **{name: weight if kind == "[out, in]" else weight.T})
    text = f"tensors: {{proj: {name}}}\nrotary: {{checkpoint: halves, heads: 2}}"
    found = imported(tmp_path, rotating_pairs(), tmp_path / "w.npz", text)
    assert found.ok and found.plan.assignments[0].reordered == ("rotary pairs of 2 heads",)
    held = numpy_helper.to_array(onnx.load(tmp_path / "out.onnx").graph.initializer[0])
    np.testing.assert_array_equal(held, to_pairs(weight).T)


@pytest.mark.parametrize("layout", ["torch", "onnx"])
def test_the_outputs_of_a_square_matrix_follow_its_layout(tmp_path: Path, layout: Any) -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 23]>
        g (float[1,1,8] x, float[1,1,2] c, float[1,1,2] s) => (float[1,1,8] y) {
            q = MatMul(x, proj)
            y = RotaryEmbedding <interleaved=1, num_heads=2> (q, c, s)
        }
    """)
    proto.graph.initializer.append(numpy_helper.from_array(np.zeros((8, 8), np.float32), "proj"))
    weight, name = floats(8, 8), "layers.0.self_attn.q_proj.weight"
    np.savez(tmp_path / "w.npz", **{name: weight if layout == "torch" else weight.T})
    text = f"tensors: {{proj: {name}}}\nrotary: {{checkpoint: halves, heads: 2}}"
    assert imported(tmp_path, proto, tmp_path / "w.npz", text, layout=layout).ok
    held = numpy_helper.to_array(onnx.load(tmp_path / "out.onnx").graph.initializer[0])
    np.testing.assert_array_equal(held, to_pairs(weight).T)


def test_weights_exported_from_a_model_that_rotates_pairs(tmp_path: Path) -> None:
    """They have names of Hugging Face, and pairs already: this must be said, and then nothing is reordered."""
    name, weight = "model.layers.0.self_attn.q_proj.weight", floats(6, 8)
    np.savez(tmp_path / "w.npz", **{name: weight})
    unclear = misfits(imported(tmp_path, rotating_pairs(name), tmp_path / "w.npz"))
    assert unclear[name].startswith("the model rotates pairs, and whether")
    assert "add 'rotary: {checkpoint: pairs}' or 'halves' to the mapping" in unclear[name]
    text = "tensors: {'*': '*'}\nrotary: {checkpoint: %s, heads: %s}"
    found = imported(tmp_path, rotating_pairs(name), tmp_path / "w.npz", text % ("pairs", 2))
    assert found.ok and not found.plan.assignments[0].reordered
    held = numpy_helper.to_array(onnx.load(tmp_path / "out.onnx").graph.initializer[0])
    np.testing.assert_array_equal(held, weight)
    odd = misfits(imported(tmp_path, rotating_pairs(name), tmp_path / "w.npz", text % ("halves", 3)))
    assert "has 8 rows, which are not 3 heads with rotary pairs" in odd[name]


def test_an_output_axis_that_is_not_known_is_a_misfit(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", **{"layers.0.self_attn.q_proj.weight": floats(6, 8)})
    text = "tensors: {proj: layers.0.self_attn.q_proj.weight}\nrotary: {checkpoint: halves, heads: 2}"
    proto = rotating_pairs(reading='Einsum<equation="abc,cd->abd">(x, {})')
    unclear = misfits(imported(tmp_path, proto, tmp_path / "w.npz", text))
    assert "the graph does not show which axis has them" in unclear["proj"]


def test_a_model_that_rotates_pairs_takes_pairs(tmp_path: Path) -> None:
    proto, weight = rotating_pairs(), floats(8, 6)
    path = gguf_file(tmp_path / "w.gguf", {"blk.0.attn_q.weight": weight})
    assert imported(tmp_path, proto, path, "tensors: {proj: blk.0.attn_q.weight}").ok
    held = numpy_helper.to_array(onnx.load(tmp_path / "out.onnx").graph.initializer[0])
    np.testing.assert_array_equal(held, weight.T)
    # A graph without any rotation does not show what it would rotate.
    bare = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[1,6] x) => (float[1,8] y) { y = MatMul(x, proj) }'
    )
    bare.graph.initializer.append(numpy_helper.from_array(np.zeros((6, 8), np.float32), "proj"))
    unclear = misfits(imported(tmp_path, bare, path, "tensors: {proj: blk.0.attn_q.weight}"))
    assert "add 'rotary: {model: halves}' or 'pairs' to the mapping" in unclear["proj"]


# Constant nodes


@pytest.mark.parametrize("size", [3, 300])
def test_weights_in_constant_nodes(tmp_path: Path, size: int) -> None:
    """They take a tensor of their name, and are not missing without one."""
    weight = numpy_helper.from_array(np.zeros((size, 4), np.float32))
    nodes = [
        onnx.helper.make_node("Constant", [], ["w"], value=weight),
        onnx.helper.make_node("Constant", [], ["scale"], value=numpy_helper.from_array(np.ones(4, np.float32))),
        onnx.helper.make_node("MatMul", ["x", "w"], ["a"]),
        onnx.helper.make_node("Mul", ["a", "scale"], ["y"]),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", size])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 4])],
    )
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    new = floats(4, size)
    assert imported(tmp_path, proto, t.saved(tmp_path / "w.pt", {"w": new})).ok
    x = floats(2, size)
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx")
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ new.T, rtol=1e-4, atol=1e-5)
