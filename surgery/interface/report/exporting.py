"""The stages of `surgery export` as text."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from surgery.features.frameworks.export import Exported
from surgery.features.frameworks.parity import ModuleParity

_FEW = 3


def report(made: Exported, *, every: bool = False) -> RenderableType:
    """Return the stages, the frozen branches, and the result; `every` lists all warnings and left-out inputs."""
    table = Table.grid(padding=(0, 2))
    for stage in made.stages:
        table.add_row(stage.name, f"{stage.seconds:.1f} s", stage.text)
    parts: list[RenderableType] = [table]
    most = None if every else _FEW
    found = made.final
    if found is not None:
        parts += _decisions(found)
        parts += [
            Text(f"left out, because the module rejects it: {one}", style="yellow") for one in found.left_out[:most]
        ]
    parts += [Text(f"warning of the exporter: {one}", style="yellow") for one in made.warnings[:most]]
    if most is not None and len(made.warnings) > most:
        parts.append(Text(f"and {len(made.warnings) - most} more warnings (-v lists them)", style="yellow"))
    return Group(*parts, conclusion(made))


def _decisions(found: ModuleParity) -> list[RenderableType]:
    """Return the branches that depend on values, and whether both of their sides were tested."""
    # A number that varies between runs is not a branch, and if the outputs agree, it was not frozen.
    shown = [one for one in found.turned if isinstance(one.before, bool) or found.verdict.is_different]
    turned: list[RenderableType] = [Text(f"value-dependent: {one}", style="yellow") for one in shown]
    for one in found.unturned:
        text = f"value-dependent: {one.place} was {one.value} on all inputs; the other branch is not verified"
        turned.append(Text(text, style="yellow"))
    return turned


def conclusion(made: Exported) -> RenderableType:
    """Return the result in one line."""
    found = made.final
    assert found is not None
    if made.cleanup is not None and not made.cleanup.ok:
        return Text("failed: the cleanup recipe failed; --raw skips it", style="red")
    if found.verdict.is_different:
        return Text(f"different: {found.verdict.message}", style="red")
    if found.verdict.is_unverified:
        return Text(f"unverified: {found.verdict.message}", style="yellow")
    nodes = "" if made.cleanup is None else f", {made.cleanup.input.nodes} -> {made.cleanup.output.nodes} nodes"
    return Text(f"ok: exported with {made.exporter}{nodes}, verified against PyTorch", style="green")
