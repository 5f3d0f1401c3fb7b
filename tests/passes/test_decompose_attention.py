"""The attention of ONNX Runtime, over random shapes and options, against what `decompose` makes of it.

Kernel and decomposition run in this process. Both compute in float32, so that they agree within rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from support import installed
from support.breadth import sampled
from support.decomposed import decomposed, parsed, run, run_in_place

Random = np.random.Generator
Inputs = dict[str, np.ndarray[Any, Any] | None]


@dataclass
class Drawn:
    """One call: its inputs in order, None for one that is omitted, its attributes, and how many outputs it has."""

    op: str
    inputs: Inputs
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1


def _floats(rng: Random, *shape: int) -> np.ndarray[Any, Any]:
    return rng.standard_normal(shape).astype(np.float32)


def _numbers(*items: Any) -> np.ndarray[Any, Any]:
    return np.array(items, np.int32)


def _maybe(rng: Random, value: Any) -> Any:
    return value if rng.random() < 0.5 else None


def _mask(rng: Random, batch: int, queries: int, keys: int, kinds: str) -> np.ndarray[Any, Any] | None:
    """Draw a mask in one of its forms, at times one that leaves a row nothing to attend to."""
    kind = rng.choice(list(kinds))
    lengths = rng.integers(0, keys, batch, endpoint=True)
    if kind == "-":
        return None
    if kind == "1":
        return _numbers(*lengths)
    if kind == "2":
        return rng.integers(-1, 2, (batch, keys)).astype(np.int32)
    if kind == "3":
        return rng.integers(0, 2, (batch, queries, keys)).astype(np.int32)
    if kind == "s":
        return _numbers(*lengths, *(rng.integers(0, length, endpoint=True) for length in lengths))
    assert kind == "p"
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return _numbers(*lengths, *ends, *ends)


def _bias(rng: Random, batch: int, heads: int, queries: int, keys: int) -> np.ndarray[Any, Any] | None:
    return _maybe(rng, _floats(rng, int(rng.choice([1, batch])), int(rng.choice([1, heads])), queries, keys))


def _options(rng: Random) -> dict[str, Any]:
    chosen: dict[str, Any] = {"unidirectional": int(rng.integers(0, 2))}
    if rng.random() < 0.3:
        chosen["scale"] = 0.3
    if rng.random() < 0.5:
        chosen["mask_filter_value"] = float(rng.choice([-5.0, -10000.0, np.finfo(np.float32).min]))
    return chosen


def heads(rng: Random) -> Drawn:
    """MultiHeadAttention: keys of the same or another sequence, a bias, masks, a past."""
    batch, queries, count, size = (int(rng.integers(1, 5)) for _ in range(4))
    keys, values = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    by_head = rng.random() < 0.3
    past = 0 if by_head or rng.random() < 0.5 else int(rng.integers(1, 4))
    values = size if past or by_head else values
    if by_head:
        key, value = _floats(rng, batch, count, keys, size), _floats(rng, batch, count, keys, size)
    else:
        key, value = _floats(rng, batch, keys, count * size), _floats(rng, batch, keys, count * values)
    total = keys + past
    before = (_floats(rng, batch, count, past, size) if past else None for _ in range(2))
    past_key, past_value = before
    inputs: Inputs = {
        "query": _floats(rng, batch, queries, count * size),
        "key": key,
        "value": value,
        "bias": None if by_head else _maybe(rng, _floats(rng, count * (2 * size + values))),
        "mask": _mask(rng, batch, queries, total, "--123p"),
        "added": _bias(rng, batch, count, queries, total),
        "past_key": past_key,
        "past_value": past_value,
    }
    outputs = 1 if by_head else int(rng.choice([1, 3, 4]))
    return Drawn("MultiHeadAttention", inputs, {"num_heads": count, **_options(rng)}, 3 if past else outputs)


def projected(rng: Random) -> Drawn:
    """Attention: the projection is a part of it."""
    batch, length, count, size, width = (int(rng.integers(1, 5)) for _ in range(5))
    past = int(rng.integers(1, 4)) if rng.random() < 0.5 else 0
    values = size if past else int(rng.integers(1, 4))
    hidden = count * (2 * size + values)
    inputs: Inputs = {
        "data": _floats(rng, batch, length, width),
        "weights": _floats(rng, width, hidden),
        "bias": _floats(rng, hidden),
        "mask": _mask(rng, batch, length, length + past, "--123s"),
        "past": _floats(rng, 2, batch, count, past, size) if past else None,
        "added": None if past else _bias(rng, batch, count, length, length),
    }
    sizes = {"qkv_hidden_sizes": [count * size, count * size, count * values]} if values != size else {}
    return Drawn("Attention", inputs, {"num_heads": count, **sizes, **_options(rng)}, 2 if past else 1)


def decoder(rng: Random) -> Drawn:
    """DecoderMaskedMultiHeadAttention: one new position, written into a buffer for past and present."""
    batch, count, size, past = (int(rng.integers(1, 5)) for _ in range(4))
    width, room = count * size, past + 1 + int(rng.integers(0, 3))
    inputs: Inputs = {
        "query": _floats(rng, batch, 1, width),
        "key": _floats(rng, batch, 1, width),
        "value": _floats(rng, batch, 1, width),
        "mask": _mask(rng, batch, 1, past + 1, "-2"),
        "added": _bias(rng, batch, count, 1, past + 1),
        "past_key": _floats(rng, batch, count, room, size),
        "past_value": _floats(rng, batch, count, room, size),
        "length": _numbers(past),
        **dict.fromkeys(("beams", "indirection")),
        "bias": _maybe(rng, _floats(rng, 3 * width)),
    }
    return Drawn("DecoderMaskedMultiHeadAttention", inputs, {"num_heads": count, "past_present_share_buffer": 1}, 3)


def groups(rng: Random) -> Drawn:
    """GroupQueryAttention: a prompt, one new position of ragged sequences, or several of one sequence."""
    case = rng.choice(["prompt", "prompt in a buffer", "step", "steps"])
    batch = 1 if case == "steps" else int(rng.integers(1, 4))
    count, times, size = int(rng.integers(1, 3)), int(rng.integers(1, 4)), 16 * int(rng.integers(1, 3))
    new = 1 if case == "step" else int(rng.integers(2, 5))
    known = 0 if "prompt" in case else int(rng.integers(1, 6))
    # A cache grows, or is a buffer with room for all positions.
    room = {"prompt": 0, "prompt in a buffer": new + int(rng.integers(0, 3))}.get(case, known)
    if known and rng.random() < 0.5:
        room = known + new + int(rng.integers(0, 3))
    total = known + new
    least = 0 if new == total else new - 1
    lasts = [total - 1, *(int(rng.integers(least, total)) for _ in range(batch - 1))]
    heads = count * times
    packed, rotates = rng.random() < 0.4, rng.random() < 0.6
    half = int(rng.choice([8, size // 2])) if rotates else 0
    rows = total + int(rng.integers(0, 4))
    inputs: Inputs = {
        "query": _floats(rng, batch, new, (heads + 2 * count if packed else heads) * size),
        "key": None if packed else _floats(rng, batch, new, count * size),
        "value": None if packed else _floats(rng, batch, new, count * size),
        "past_key": _floats(rng, batch, count, room, size) if room else None,
        "past_value": _floats(rng, batch, count, room, size) if room else None,
        "lasts": _numbers(*lasts),
        "total": np.array(total, np.int32),
        "cos": _floats(rng, rows, half) if rotates else None,
        "sin": _floats(rng, rows, half) if rotates else None,
        "places": _maybe(rng, rng.integers(0, rows - new + 1, (batch, new))) if rotates else None,
        "added": _bias(rng, batch, heads, new, total),
        "sink": _maybe(rng, _floats(rng, heads)),
    }
    attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": count}
    if rotates:
        attributes |= {"do_rotary": 1, "rotary_interleaved": int(rng.integers(0, 2))}
    if rng.random() < 0.4:
        attributes["local_window_size"] = int(rng.integers(1, 4))
    elif rng.random() < 0.2 and "causal" in installed.attributes("GroupQueryAttention"):
        attributes["causal"] = 0
    if "prompt" in case and ("local_window_size" in attributes or not installed.weights_padding()):
        # Of padding whose window lies past the end of its sequence the kernel gives anything.
        inputs["lasts"] = _numbers(*[total - 1] * batch)
    if rng.random() < 0.4:
        attributes["softcap"] = 2.0
    if rng.random() < 0.3 and inputs["sink"] is None:
        attributes["smooth_softmax"] = 1
    if rng.random() < 0.3:
        attributes["scale"] = 0.3
    return Drawn("GroupQueryAttention", inputs, attributes, 3)


def chunks(rng: Random) -> Drawn:
    """GroupQueryAttention with the lengths of queries: several new positions of each of several ragged sequences."""
    batch, new, known = (int(rng.integers(1, bound)) for bound in (4, 5, 6))
    count, times, size = int(rng.integers(1, 3)), int(rng.integers(1, 4)), 16
    heads, total = count * times, known + new
    lasts = [total - 1, *(int(rng.integers(new - 1, total)) for _ in range(batch - 1))]
    room = known if rng.random() < 0.5 else total + int(rng.integers(0, 3))
    inputs: Inputs = {
        "query": _floats(rng, batch, new, heads * size),
        "key": _floats(rng, batch, new, count * size),
        "value": _floats(rng, batch, new, count * size),
        "past_key": _floats(rng, batch, count, room, size),
        "past_value": _floats(rng, batch, count, room, size),
        "lasts": _numbers(*lasts),
        "total": np.array(total, np.int32),
        "cos": (cos := _maybe(rng, _floats(rng, total, 8))),
        "sin": None if cos is None else _floats(rng, total, 8),
        "places": None,
        "added": _bias(rng, batch, heads, new, total),
        "sink": None,
        **dict.fromkeys(("key_scale", "value_scale", "query_norm", "key_norm")),
        "counts": _numbers(*[new] * batch),
    }
    attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": count}
    if cos is not None:
        attributes |= {"do_rotary": 1}
    if rng.random() < 0.4:
        attributes["local_window_size"] = int(rng.integers(1, 4))
    return Drawn("GroupQueryAttention", inputs, attributes, 3)


def _model(drawn: Drawn, opset: int, dynamic: bool) -> str:
    """Write a call as a graph, with dims that are known or named."""
    names = {np.dtype(np.float32): "float", np.dtype(np.int32): "int32", np.dtype(np.int64): "int64"}
    dims: dict[int, str] = {}
    ports = []
    for name, value in drawn.inputs.items():
        if value is None:
            continue
        shape = [str(extent) for extent in value.shape]
        if dynamic and name in ("query", "key", "value", "data", "past_key", "past_value", "past", "mask"):
            shape = [dims.setdefault(extent, f"d{extent}") for extent in value.shape[:-1]] + shape[-1:]
        ports.append(f"{names[value.dtype]}[{','.join(shape)}] {name}" if shape else f"{names[value.dtype]} {name}")
    read = ", ".join(name if value is not None else "" for name, value in drawn.inputs.items())
    made = [f"y{index}" for index in range(drawn.outputs)]
    held = ", ".join(f"{name} = {value!r}" for name, value in drawn.attributes.items())
    outputs = ", ".join(f"float[] {name}" for name in made)
    return f"g ({', '.join(ports)}) => ({outputs}) {{ {', '.join(made)} = com.microsoft.{drawn.op}<{held}>({read}) }}"


@pytest.mark.parametrize("opset", sampled([17, 23], 2))
@pytest.mark.parametrize("dynamic", sampled([False, True], 2), ids=["static", "dynamic"])
@pytest.mark.parametrize(
    "draw", sampled([heads, projected, decoder, groups, chunks], 2), ids=lambda draw: draw.__name__
)
def test_decomposed_attention_matches_the_operator(draw: Callable[[Random], Drawn], dynamic: bool, opset: int) -> None:
    rng = np.random.default_rng([opset, dynamic, len(draw.__name__)])
    for _ in range(COUNT):
        drawn = draw(rng)
        model = parsed(_model(drawn, opset, dynamic), opset)
        for output in model.graph.output:
            output.type.tensor_type.ClearField("shape")
        made, reasons = decomposed(model)
        if dynamic and reasons == ["the number of lengths in the mask is unknown"]:
            continue
        assert reasons == []
        assert not any(node.domain for node in made.graph.node)
        feeds = {name: value for name, value in drawn.inputs.items() if value is not None}
        kernel = run_in_place if drawn.op.startswith("Decoder") else run
        for index, (wanted, found) in enumerate(zip(kernel(model, feeds), run(made, feeds))):
            where = f"{drawn.op} {drawn.attributes} { {k: v.shape for k, v in feeds.items()} }, output {index}"
            assert wanted.shape == found.shape, where
            np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=_absolute(drawn, index), err_msg=where)


COUNT = 25


def _absolute(drawn: Drawn, index: int) -> float:
    """Scores near -10000 have steps of 0.001: where all keys of a row are masked out, its weights are that coarse."""
    masked = drawn.inputs.get("mask") is not None
    return 5e-3 if masked and index in (0, 3) else 1e-5
