"""A random graph under a recipe: what came out, and whether plain ONNX Runtime computes the same with it.

Nothing of surgery's own verification is used to judge: sessions without optimizations, inputs that are drawn here. What
differs is held against the noise of the original: how much its own outputs move when inputs and constants do by a
rounding error. Of float16 ONNX Runtime computes most in float32 on the CPU, and rounds where an Identity or a kernel of
float16 stands, not where the model says: what differs is compared with every value rounded too, of a model that is
float16 from the start as of one that a lossy step made so. A Concat that the runtime runs though its operands do not
fit leaves elements unwritten: what memory holds there is no result, and is counted apart.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

import surgery
from random_graphs.elements import FLOATS
from random_graphs.generate import Made, extents, feed
from random_graphs.trace import options
from surgery.engine import recipe as recipes

SLOW = 30.0
ROUNDING = {2: 2e-3, 4: 3e-7, 8: 1e-15}
"""What noise is, relative to a number, by the bytes of a float."""
LIMITS = {2: 1e-2, 4: 1e-4, 8: 1e-9}
"""The largest error that is rounding without a further look, as a share of the output's largest magnitude."""
LEAST_SNR = 20.0
"""Decibels that a lossy result keeps on inputs that surgery did not draw; its budgets ask for more on those it drew."""
HUGE = 100.0
"""Magnitude of inputs above which nothing is promised for a lossy result: float16 ends at the square of 256."""
NEAR_LIMIT = 100.0
"""How far below the largest number of its type a result may be where the other order of multiplications overflows."""
MOST_BINDINGS = 9

_OF_SEQUENCES = ("SequenceConstruct", "SequenceErase", "SequenceInsert", "SplitToSequence")

Arrays = dict[str, Any]

NOTHING_SHOWN = (
    *("the outputs do not depend on", "nothing is proven", "is not shown", "no output shows it"),
    *("no later value changes", "no tried input reads", "is too large", "longer than running the whole"),
)
"""What the reason of a refused site says when the change was not shown to be right, nor to be wrong."""


def judge(made: Made, recipe: str, seed: int = 0, *, verified: bool = True) -> dict[str, Any]:
    """Run a recipe over a model and judge what it wrote; `status` is the class, the rest is for the reader."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "out.onnx")
        record: dict[str, Any] = {"recipe": recipe, "nodes": len(made.model.graph.node)}
        try:
            loaded = recipes.load(recipe)
            if not verified:
                loaded = replace(loaded, verify=replace(loaded.verify, mode="off"))
            result = surgery.apply(made.model, loaded, output=path)
        except Exception as problem:
            seconds = round(time.perf_counter() - started, 2)
            return record | {"status": "exception", "what": f"{type(problem).__name__}: {problem}", "seconds": seconds}
        record["seconds"] = round(time.perf_counter() - started, 2)
        record["slow"] = record["seconds"] > SLOW
        refused = [s for s in result.steps if s.status in ("failed", "rolled_back") or s.refused_sites]
        record["refused"] = [_told(step) for step in refused]
        reasons = [site.why for step in refused for site in step.refused_sites]
        whole = [step for step in refused if step.verdict is not None and step.verdict.status == "unverified"]
        lacking = [step for step in whole if "no kernel" in step.message]
        # A step that is refused whole has a verdict; of a site that is, only the reason is known.
        record["unverified"] = len(whole) > len(lacking)
        record["unverified"] |= any(words in why for why in reasons for words in NOTHING_SHOWN)
        record["no kernel"] = bool(lacking) or any("no kernel" in why for why in reasons)
        record["internal error"] = any("internal error" in why for why in (*reasons, *(s.message for s in refused)))
        record["end"] = result.end.status if result.end is not None else ""
        if not path.exists():
            return record | {"status": "nothing", "exit": result.exit_code}
        record["nodes_after"] = result.output.nodes
        return record | compare(made, path, seed, lossy=result.loss is not None)


def _told(step: Any) -> dict[str, str]:
    status = step.verdict.status if step.verdict is not None else ""
    return {"pass": step.name, "status": step.status, "verdict": status, "message": step.message}


def session(model: onnx.ModelProto | Path, *, optimized: bool = False) -> ort.InferenceSession:
    loaded = str(model) if isinstance(model, Path) else model.SerializeToString()
    chosen = options()
    if optimized:
        chosen.graph_optimization_level = ort.SessionOptions().graph_optimization_level
    return ort.InferenceSession(loaded, chosen, providers=["CPUExecutionProvider"])


def compare(made: Made, path: Path, seed: int, *, lossy: bool = False) -> dict[str, Any]:
    """Compare the original with what was written, on all that `feeds` draws."""
    original = session(made.model)
    try:
        result = session(path)
    except Exception as problem:
        return {"status": "wrong", "what": f"the result does not load: {problem}"}
    if (problem := _as_deployed(path)) and not _as_deployed(made.model):
        return {"status": "wrong", "what": f"the result does not load with the runtime's defaults: {problem}"}
    rng = np.random.default_rng([23, seed])
    worst, runs, special, unrounded, unwritten = 0.0, 0, [], 0, 0
    for label, fed in feeds(made, rng):
        expected = _try(original, fed)
        if isinstance(expected, str):
            continue
        runs += 1
        taken = {i.name for i in (*result.get_inputs(), *result.get_overridable_initializers())}
        found = _try(result, {name: value for name, value in fed.items() if name in taken})
        error, what = difference(made, expected, found, lossy=lossy)
        worst = max(worst, error)
        if not what:
            continue
        if label["special"] or (lossy and _largest(fed) > HUGE) or not difference(made, *_bounded(expected, found))[1]:
            special.append(f"{what} {label}")
        elif _agrees_rounded(made, path, fed, lossy=lossy):
            unrounded += 1
        elif leaves_unwritten(made.model, fed):
            unwritten += 1
        elif not _noisy(made, fed, expected, what, rng):
            return {"status": "wrong", "what": what, "at": label, "runs": runs, "needed": worst}
    status = "not run" if not runs else "equal" if worst == 0 and not special else "close"
    counts = {"unrounded": unrounded, "unwritten": unwritten}
    return {"status": status, "needed": worst, "runs": runs, "special": special[:2]} | counts


def _bounded(expected: Arrays, found: Arrays | str) -> tuple[Arrays, Arrays | str]:
    """Replace what overflows on one side only, and is near the limit of its type on the other, on both sides.

    Where a product is infinite and a scale brings it back, the order of the multiplications decides.
    """
    if isinstance(found, str):
        return expected, found
    sides: tuple[Arrays, Arrays] = dict(expected), dict(found)
    for name, value in expected.items():
        other = found.get(name)
        if other is None or value.dtype not in FLOATS or (value.dtype, value.shape) != (other.dtype, other.shape):
            continue
        left, right = (np.abs(np.nan_to_num(one.astype(np.float64), nan=0.0)) for one in (value, other))
        limit = float(np.finfo(value.dtype).max)
        overflows = (np.isinf(value) != np.isinf(other)) & (np.minimum(left, right) > limit / NEAR_LIMIT)
        for side, one in zip(sides, (value, other)):
            side[name] = np.where(overflows, np.zeros_like(one), one)
    return sides


def _largest(fed: Arrays) -> float:
    """Return the largest magnitude of floats in the inputs."""
    return max([0.0, *(float(np.abs(one).max()) for one in fed.values() if one.dtype in FLOATS and one.size)])


def _as_deployed(model: onnx.ModelProto | Path) -> str:
    """Return why a model does not load with the default optimizations of the runtime, or ""."""
    try:
        session(model, optimized=True)
    except Exception as problem:
        return str(problem)
    return ""


def bindings(made: Made) -> list[dict[str, int]]:
    """Choose sizes: all alike, each one alone, and the extents of constants."""
    names = made.symbols
    if not names:
        return [{}, {}]
    sizes = extents(made)
    chosen = [dict.fromkeys(names, size) for size in sizes]
    for name, size in itertools.product(names, sizes):
        chosen += [dict.fromkeys(names, other) | {name: size} for other in (2, 5) if other != size]
    first = [
        {name: (2, 5, 3, 7)[i] for i, name in enumerate(names)},
        {name: (5, 1, 2, 3)[i] for i, name in enumerate(names)},
    ]
    return [*first, *chosen]


def feeds(made: Made, rng: np.random.Generator) -> Iterator[tuple[dict[str, Any], Arrays]]:
    """Draw inputs: ordinary ones at many sizes, some with overridden initializers, and others with special values."""
    sizes = bindings(made)
    if len(sizes) > MOST_BINDINGS:
        sizes = [*sizes[:4], *(sizes[i] for i in rng.permutation(len(sizes))[: MOST_BINDINGS - 4])]
    overridable = any(entry.overrides for entry in made.inputs.values())
    for number, binding in enumerate(sizes):
        for override in (False, True) if overridable and number < 4 else (False,):
            label = {"sizes": binding, "override": override, "special": False}
            yield label, feed(made, rng, binding, special=False, override=override)
    for binding in sizes[:2]:
        label = {"sizes": binding, "override": overridable, "special": True}
        yield label, feed(made, rng, binding, special=True, override=overridable)


def _try(ready: ort.InferenceSession, fed: Arrays) -> Arrays | str:
    names = [output.name for output in ready.get_outputs()]
    try:
        return dict(zip(names, ready.run(None, fed)))
    except Exception as problem:
        return f"does not run: {problem}"


def difference(made: Made, expected: Arrays, found: Arrays | str, *, lossy: bool = False) -> tuple[float, str]:
    """Return the largest error, as a share of the range, and what is wrong.

    A lossy result keeps `LEAST_SNR`, and what is finite; integers may follow the loss.
    """
    if isinstance(found, str):
        return np.inf, found
    if list(expected) != list(found):
        return np.inf, f"outputs {list(found)} instead of {list(expected)}"
    width = _narrowest(made.model)
    worst = 0.0
    for name, value in expected.items():
        other = found[name]
        if (value.dtype, value.shape) != (other.dtype, other.shape):
            return np.inf, f"{name}: {other.dtype}{other.shape} instead of {value.dtype}{value.shape}"
        if name in made.random:
            continue
        error = distance(value, other)
        worst = max(worst, error)
        if lossy:
            if value.dtype in FLOATS and (snr := _snr(value, other)) < LEAST_SNR:
                return worst, f"{name}: {snr:.1f} dB, off by {error:.1e}"
        elif error > (LIMITS[min(width, value.dtype.itemsize)] if value.dtype in FLOATS else 0):
            return worst, f"{name}: off by {error:.1e}"
    return worst, ""


def distance(value: Any, other: Any) -> float:
    """Return the largest error as a share of the largest magnitude; infinite when NaN or infinity sit elsewhere."""
    if value.dtype not in FLOATS:
        return 0.0 if np.array_equal(value, other) else np.inf
    left, right = value.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(left)
    if not np.array_equal(left[~finite], right[~finite], equal_nan=True) or not np.isfinite(right[finite]).all():
        return float(np.inf)
    with np.errstate(all="ignore"):
        scale = np.abs(left[finite]).max(initial=0.0) or 1.0
        return float((np.abs(left[finite] / scale - right[finite] / scale)).max(initial=0.0))


def _snr(value: Any, other: Any) -> float:
    """Return the signal-to-noise ratio in decibels; minus infinity when NaN or infinity sit elsewhere."""
    left, right = value.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(left)
    if not np.array_equal(left[~finite], right[~finite], equal_nan=True) or not np.isfinite(right[finite]).all():
        return float(-np.inf)
    noise = np.square(left[finite] - right[finite]).sum()
    with np.errstate(all="ignore"):
        return float(10 * np.log10(np.square(left[finite]).sum() / noise)) if noise else float(np.inf)


def _narrowest(model: onnx.ModelProto) -> int:
    """Return the bytes of the narrowest float that is computed with."""
    text = str(model.graph)
    kinds = {
        "elem_type: 10\n": 2,
        "elem_type: 1\n": 4,
        "data_type: 10\n": 2,
        "data_type: 1\n": 4,
        "i: 10\n": 2,
        "i: 1\n": 4,
    }
    return min([width for mark, width in kinds.items() if mark in text], default=8)


def _noisy(made: Made, fed: Arrays, expected: Arrays, what: str, rng: np.random.Generator) -> bool:
    """Whether the original moves about as much itself, when all that it reads moves by a rounding error."""
    if "does not run" in what or "instead of" in what:
        return False
    name = what.split(":")[0]
    for _ in range(6):
        moved = onnx.ModelProto.FromString(made.model.SerializeToString())
        for tensor in _tensors(moved.graph):
            array = numpy_helper.to_array(tensor)
            if array.dtype in FLOATS:
                tensor.CopyFrom(numpy_helper.from_array(_jitter(array, rng), tensor.name))
        try:
            ready = session(moved)
        except Exception:
            # Scales of a Resize and the like may not move.
            return True
        again = _try(ready, {key: _jitter(value, rng) for key, value in fed.items()})
        if isinstance(again, str) or again[name].shape != expected[name].shape:
            return True
        own = distance(expected[name], again[name])
        error = float(what.rsplit(" ", 1)[1])
        if own >= error / 20 or own == np.inf:
            return True
    return False


def _agrees_rounded(made: Made, path: Path, fed: Arrays, *, lossy: bool = False) -> bool:
    """Whether models of 16-bit floats agree when each value is rounded to its type."""
    result = onnx.load(path)
    if _narrowest(result if lossy else made.model) > 2:
        return False
    results: list[Arrays] = []
    for model in (made.model, result):
        rounding = onnx.ModelProto.FromString(model.SerializeToString())
        _round(rounding.graph)
        ready = session(rounding)
        taken = {i.name for i in (*ready.get_inputs(), *ready.get_overridable_initializers())}
        found = _try(ready, {name: value for name, value in fed.items() if name in taken})
        if isinstance(found, str):
            return False
        results.append(found)
    return not difference(made, *results, lossy=lossy)[1]


def leaves_unwritten(model: onnx.ModelProto, fed: Arrays) -> bool:
    """Whether a Concat of a model reads tensors that differ in another axis than its own, as an empty one may.

    ONNX forbids it. ONNX Runtime lets it pass, allocates the result, and leaves the place of the empty one unwritten.
    """
    joins = [node for node in model.graph.node if node.op_type == "Concat"]
    exposed = onnx.ModelProto.FromString(model.SerializeToString())
    there = {value.name for value in (*model.graph.output, *model.graph.input, *model.graph.initializer)}
    names = dict.fromkeys(name for node in joins for name in node.input if name not in there)
    exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    found = _try(session(exposed), fed) if joins else {}
    if isinstance(found, str):
        return False
    known = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    known |= {name: np.shape(array) for name, array in (*fed.items(), *found.items())}
    return any(_misfit([known[name] for name in node.input], node.attribute[0].i) for node in joins)


def _misfit(shapes: list[tuple[int, ...]], axis: int) -> bool:
    """Whether shapes differ in an axis other than this one."""
    others = {(*shape[: axis % len(shape)], *shape[axis % len(shape) + 1 :]) for shape in shapes}
    return len(others) > 1


def _round(graph: onnx.GraphProto) -> None:
    """Put two Identity nodes after each node: ONNX Runtime may run one, but not both, in float32 with a neighbour."""
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        names = (
            [] if node.op_type in ("Identity", "Constant", *_OF_SEQUENCES) else [name for name in node.output if name]
        )
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _round(attribute.g)
        node.output[:] = [f"{name}/0" if name in names else name for name in node.output]
        graph.node.append(node)
        for name in names:
            graph.node.append(onnx.helper.make_node("Identity", [f"{name}/0"], [f"{name}/1"]))
            graph.node.append(onnx.helper.make_node("Identity", [f"{name}/1"], [name]))


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR and node.op_type == "Constant":
                yield attribute.t
            elif attribute.type == onnx.AttributeProto.GRAPH:
                yield from _tensors(attribute.g)


def _jitter(array: Any, rng: np.random.Generator) -> Any:
    if array.dtype not in FLOATS:
        return array
    with np.errstate(all="ignore"):
        moved = array * (1 + ROUNDING[array.dtype.itemsize] * rng.choice([-1.0, 1.0], array.shape))
        return np.asarray(moved).astype(array.dtype)
