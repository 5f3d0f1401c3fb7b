"""The values that a target is computed from, compared where the target itself proves nothing.

A product with zero, a loop that never runs or a Slice of nothing agrees for any inputs. If the same operator produces a
target in both models, the target is equal if the operator's inputs are. So these inputs are compared pair by pair, and
where a pair proves nothing either, the inputs of its producers are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from surgery.model.proto.dataflow import Flow
from surgery.model.proto.extract import called
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.fingerprint import hands_on, numbered, operation
from surgery.verification.comparing.output_judge import VACUOUS
from surgery.verification.regions.regions import OWN_INITIALIZERS, Region

if TYPE_CHECKING:
    import onnx

_DEEPEST = 6
"""Maximum number of operators passed on the way upstream."""

_Pair = tuple[str, str]
"""The names of a value in the two pieces of a region."""


def descend(
    region: Region, name: str, verdict: Verdict, compare: Callable[[Region], Mapping[str, Verdict]]
) -> tuple[Verdict, list[Region]]:
    """Compare the values that an agreeing target is computed from; return its verdict and the regions that show it.

    `compare` returns verdicts on the targets of a region.
    """
    sides = region.before, region.after
    flows = Flow(sides[0].graph), Flow(sides[1].graph)
    numbers = numbered(*sides)
    target = region.outputs[region.targets.index(name)]
    pending: list[_Pair] = [(target, target)]
    close: list[Verdict] = []
    shown: list[Region] = []
    for _ in range(_DEEPEST):
        found: dict[_Pair, None] = {}
        for pair in pending:
            pairs = _read(sides, flows, pair)
            if pairs is None:
                return verdict, []
            # Values with the same number are computed in the same way from the same values, and need no comparison.
            found.update((one, None) for one in pairs if numbers[0].get(one[0], -1) != numbers[1].get(one[1], -2))
        if not found:
            break
        piece = _between(region, flows, list(found))
        verdicts = compare(piece)
        # If a value upstream differs, nothing is shown by them, and the verdict on the target stays.
        if any(not one.passed and one.reason != VACUOUS for one in verdicts.values()):
            return verdict, []
        shown.append(piece)
        close += [one for one in verdicts.values() if one.status is Status.CLOSE]
        # What is vacuous here may be shown one level up, as the target may by these values.
        pending = [pair for pair, label in zip(found, piece.targets) if not verdicts[label].passed]
        if not pending:
            break
    else:
        return verdict, []
    if not shown:
        return verdict, []
    message = "computed by the same operators from values that agree"
    if close:
        worst = max(close, key=lambda one: one.needed["rtol"] if one.needed else 0.0)
        return replace(worst, message=f"{message}: {worst.message}"), shown
    return Verdict(Status.EQUAL, message=message), shown


def trimmed(region: Region) -> Region | None:
    """Return a region without the operators at its end that are the same in both pieces; None if that is impossible.

    Where its targets are bit-identical, those of the whole region are too. They are compared without running a Conv
    whose input was only rearranged. Stored values that differ are left to the operators that read them.
    """
    sides = region.before, region.after
    flows = Flow(sides[0].graph), Flow(sides[1].graph)
    numbers = numbered(*sides)
    pending: list[_Pair] = [(name, name) for name in region.outputs]
    seen = set(pending)
    left: list[_Pair] = []
    while pending:
        pair = pending.pop()
        pairs = _read(sides, flows, pair)
        if pairs is None:
            left.append(pair)
            continue
        for one in pairs:
            if one not in seen and numbers[0].get(one[0], -1) != numbers[1].get(one[1], -2):
                seen.add(one)
                pending.append(one)
    if not left or any(name in region.outputs for name, _ in left) or any(_are_stored(flows, pair) for pair in left):
        return None
    return _between(region, flows, sorted(left))


def _are_stored(flows: tuple[Flow, Flow], pair: _Pair) -> bool:
    """Return whether both values of a pair are stored in the models."""
    made = [flow.producers.get(name) for flow, name in zip(flows, pair)]
    return all(number is None or flow.nodes[number].op_type == "Constant" for flow, number in zip(flows, made))


def _read(sides: tuple[onnx.ModelProto, onnx.ModelProto], flows: tuple[Flow, Flow], pair: _Pair) -> list[_Pair] | None:
    """Pair the inputs of the operator that produces a value in both models; None unless the operators are the same."""
    places = [_made(flow, name) for flow, name in zip(flows, pair)]
    if places[0] is None or places[1] is None or places[0][1] != places[1][1]:
        return None
    nodes = [flow.nodes[place[0]] for flow, place in zip(flows, places) if place is not None]
    (first, mine), (second, theirs) = operation(sides, nodes)
    return list(zip(mine, theirs)) if first == second else None


def _made(flow: Flow, name: str) -> tuple[int, int] | None:
    """Return the index of the node that produces a value and the output position, looking through copies."""
    while name in flow.producers:
        number = flow.producers[name]
        node = flow.nodes[number]
        if not hands_on(node):
            return number, list(node.output).index(name)
        name = node.input[0]
    return None


def _between(region: Region, flows: tuple[Flow, Flow], pairs: list[_Pair]) -> Region:
    """Cut the nodes upstream of pairs of values out of both pieces of a region."""
    labels = tuple(f"{mine}/{number}" for number, (mine, _) in enumerate(pairs))
    before, after = (
        _piece(side, flow, {label: pair[place] for label, pair in zip(labels, pairs)})
        for place, (side, flow) in enumerate(zip((region.before, region.after), flows))
    )
    read = _names_read(before) | _names_read(after)
    given = tuple(name for name in region.given if name in read)
    nodes = max(len(piece.graph.node) for piece in (before, after)) - len(pairs)
    return Region(labels, labels, given, before, after, nodes)


def _piece(model: onnx.ModelProto, flow: Flow, wanted: Mapping[str, str]) -> onnx.ModelProto:
    """Copy the nodes upstream of some values, and expose these values under other names."""
    import onnx
    import onnx.helper

    result = onnx.ModelProto(ir_version=max(model.ir_version, OWN_INITIALIZERS))
    result.opset_import.extend(model.opset_import)
    graph = result.graph
    graph.name = "region"
    graph.node.extend(flow.nodes[number] for number in sorted(flow.above(wanted.values())))
    graph.node.extend(onnx.helper.make_node("Identity", [name], [label]) for label, name in wanted.items())
    read = _names_read(result)
    graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in read)
    graph.sparse_initializer.extend(t for t in model.graph.sparse_initializer if t.values.name in read)
    result.functions.extend(called(model, graph.node))
    return result


def _names_read(model: onnx.ModelProto) -> set[str]:
    return {name for reads in Flow(model.graph).reads for name in reads}
