"""The tuning of a recipe, on the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from surgery.features.tuning.tune_recipe import Tuned
from surgery.features.tuning.tuning import Trial
from surgery.interface.report import accuracy_loss
from surgery.interface.report.formatting import size
from surgery.interface.report.speed import how_measured, interval

_LONGEST = 100
"""Maximum number of characters of a reason that are shown."""


def tuned(found: Tuned) -> RenderableType:
    """Return the table of trials, and the effect of the resulting recipe on the model."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("step or group", overflow="fold")
    table.add_column("sites", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("speed", justify="right", no_wrap=True)
    table.add_column(f"{100 * found.spec.bench.level:g} % interval", justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for one in found.trials:
        table.add_row(*_row(one))
    notes = [Text(line, style="dim") for line in how_measured(found.spec.bench, found.inputs)]
    return Group(table, Text(""), *_conclusion(found), *notes)


def _row(one: Trial) -> tuple[RenderableType, ...]:
    title = one.name if one.what == "step" else f"{one.name}, {one.what} {one.group}"
    outcome = Text("kept" if one.kept else "left out", style="green" if one.kept else "yellow")
    if one.what == "without":
        outcome = Text("left in float" if one.kept else "stays converted", style="green" if one.kept else "dim")
    outcome.append(f": {_short(one.why)}", style="")
    return Text(title), Text(str(one.sites) if one.sites else ""), _verdict(one), *interval(one.speed), outcome


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _verdict(one: Trial) -> Text:
    if one.verdict is None:
        return Text("")
    metrics = one.verdict.details.metrics if one.verdict.details is not None else None
    snr = f", {metrics['snr']:.1f} dB" if metrics is not None else ""
    return Text(f"{one.verdict.status}{snr}", style=one.verdict.status.style)


def _conclusion(found: Tuned) -> Iterator[Text]:
    if found.complaint:
        yield Text(f"{found.complaint}; no file was written", style="bold red")
        return
    if not found.kept:
        yield Text("no optional step is measurably faster; the recipe has none", style="bold yellow")
    if found.result is None:
        yield Text("no step is left, so there is no recipe to write", style="bold yellow")
    elif found.speed is None:
        yield Text("the recipe does not change the model", style="bold yellow")
    else:
        speed, sizes = found.speed, (found.result.input.bytes, found.result.output.bytes)
        smaller = f", {size(sizes[0])} -> {size(sizes[1])}" if all(sizes) else ""
        times = f"{speed.ratio:.3f} times as fast as the original ({speed.low:.3f} to {speed.high:.3f}){smaller}"
        lossy = accuracy_loss.lead(found.result)
        if lossy:
            yield Text(lossy, style="bold cyan")
        yield Text(f"the recipe as a whole: {times}", style="bold green" if speed.low > 1.0 else "bold yellow")
