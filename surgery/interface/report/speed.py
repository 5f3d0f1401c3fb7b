"""Measured models as rich tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from surgery.base.errors import counted
from surgery.interface.report.formatting import size
from surgery.verification.benchmarking.bench_spec import BenchSpec
from surgery.verification.benchmarking.measurements import Comparison, Measured
from surgery.verification.benchmarking.statistics import Interval

_STYLES = {"faster": "green", "slower": "red", "": "yellow"}


def comparison(found: Comparison) -> RenderableType:
    """Return the report of `bench`: a row for each model, the conditions of the measurement, the operators."""
    parts: list[RenderableType] = [_models(found), Text("")]
    parts += [Text(line) for line in _verdicts(found)]
    parts += [Text(line, style="dim") for line in _how(found)]
    if any(model.profile for model in found.models):
        parts += [Text(""), _operators(found)]
    return Group(*parts)


def _models(found: Comparison) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model", overflow="fold")
    for title in ("ms", "speed", f"{100 * found.spec.level:g} % interval", "session ms", "memory", "file"):
        table.add_column(title, justify="right", no_wrap=True)
    for model in found.models:
        table.add_row(
            model.name,
            milliseconds(model.seconds),
            *interval(model.speed),
            milliseconds(model.session_seconds),
            size(model.memory.peak) if model.memory is not None else "",
            size(model.bytes) if model.bytes is not None else "",
        )
    return table


def interval(speed: Interval | None) -> tuple[Text, Text]:
    """Format the relative speed of a model: the ratio and its interval."""
    if speed is None:
        return Text(""), Text("")
    return Text(f"{speed.ratio:.3f}", style=_STYLES[_side(speed)]), Text(f"{speed.low:.3f} to {speed.high:.3f}")


def _side(speed: Interval) -> str:
    """Return whether an interval is above ("faster") or below ("slower") 1; empty if it contains 1."""
    return ("faster" if speed.low > 1.0 else "slower") if speed.excludes(1.0) else ""


def milliseconds(seconds: float) -> str:
    """Format a duration in milliseconds with four digits, at most three of them after the decimal point."""
    value = seconds * 1000
    return f"{value:.{3 if value < 10 else 2 if value < 100 else 1 if value < 1000 else 0}f}"


def _verdicts(found: Comparison) -> Iterator[str]:
    base = found.baseline.name
    for model in found.others:
        assert model.speed is not None
        side = _side(model.speed)
        if not side:
            yield f"{model.name} and {base}: no difference is shown"
            continue
        factors = sorted((model.speed.low, model.speed.high))
        factors = factors if side == "faster" else [1 / factors[1], 1 / factors[0]]
        yield f"{model.name} is {side} than {base}: {factors[0]:.3f} to {factors[1]:.3f} times"


def _how(found: Comparison) -> Iterator[str]:
    first, *others = how_measured(found.spec, found.inputs)
    calls = f" of {found.calls} runs" if found.calls > 1 else ""
    yield f"{first}; {found.rounds} rounds{calls} in {found.sessions} sessions"
    yield from others


def how_measured(spec: BenchSpec, inputs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the conditions of a measurement: the clock, the threads, and the input sets."""
    threads = counted(spec.threads, "thread")
    clock = "processor time" if spec.used_clock == "processor" else "time by the clock"
    yield f"{clock}, {threads}, optimization {spec.optimization}"
    for one in inputs[:3]:
        dims = ", ".join(f"{name}={extent}" for name, extent in one["dims"].items())
        kind = f"drawn with seed {one['seed']}" if one["seed"] is not None else f"from {one['character']}"
        yield f"inputs {kind}{f': {dims}' if dims else ''}"
    if len(inputs) > 3:
        yield f"and {len(inputs) - 3} other sets of inputs"


def _operators(found: Comparison) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("operator", no_wrap=True)
    for number in range(len(found.models)):
        name = chr(ord("A") + number) if number < 26 else str(number + 1)
        for title in (f"{name} nodes", "ms", "share", *(["speed"] if number else [])):
            table.add_column(title, justify="right", no_wrap=True)
    kept = [{one.op: one for one in model.profile} for model in found.models]
    most = {op: max(one[op].seconds for one in kept if op in one) for ops in kept for op in ops}
    for op in sorted(most, key=lambda name: -most[name]):
        table.add_row(op, *_cells(found.models, op))
    return table


def _cells(models: tuple[Measured, ...], op: str) -> Iterator[str]:
    first = next((one for one in models[0].profile if one.op == op), None)
    for number, model in enumerate(models):
        own = next((one for one in model.profile if one.op == op), None)
        yield from ("", "", "") if own is None else (str(own.nodes), milliseconds(own.seconds), f"{own.share:.1%}")
        if number:
            both = own is not None and first is not None and own.seconds > 0
            yield f"{first.seconds / own.seconds:.2f}" if both and first is not None and own is not None else ""
