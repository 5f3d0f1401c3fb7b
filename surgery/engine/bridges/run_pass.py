"""One run of one pass over a graph: in this process, or contained in a fork of it.

The standard passes run here. Other passes may raise, crash, hang, exhaust memory or exit, which must not end the run:
they run on the graph in a fork, and the result is returned as a model without weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from surgery.base.errors import (
    PassError,
    RaisedError,
    SurgeryError,
    internal,
    pack_error,
    raised,
    require_machine,
    unpack_error,
)
from surgery.base.packing import Packer
from surgery.base.workers import default_memory
from surgery.base.workers.fork import call_in_fork
from surgery.model import storage
from surgery.model.graph.graph import Graph
from surgery.model.graph.signature_mappings import Joined, Pieces, Relation, SignatureMapping
from surgery.model.graph.state import Defect, Refused, Site, WorkerLimits
from surgery.model.graph.values import Node

if TYPE_CHECKING:
    import onnx

    from surgery.engine.registry.passes import Pass


_PACKER = Packer(Site, Refused, Relation, Joined, Pieces)


@dataclass(frozen=True)
class PassResult:
    """The result of a pass; `proto` is None if nothing was applied.

    `live` says whether the graph itself was changed; otherwise it is unchanged. `renamed` maps the previous names of
    inputs and outputs to the current ones, and `accounts` has the relations to the previous model. `defects` are the
    sites that a standard pass lost to an exception, and `remarks` what the pass says about its result.
    """

    proto: onnx.ModelProto | None
    sites: tuple[Site, ...]
    refusals: tuple[Refused, ...]
    live: bool
    printed: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)
    accounts: tuple[SignatureMapping, ...] = ()
    defects: tuple[Defect, ...] = ()
    remarks: tuple[str, ...] = ()


def run_pass(
    declared: Pass,
    graph: Graph,
    options: Mapping[str, Any],
    timeout: float | None = None,
    memory: int | None = None,
    *,
    skip: frozenset[int] = frozenset(),
    contained: bool = True,
) -> PassResult:
    """Run a pass over a graph whose weights are stored, except at the sites to `skip`.

    `timeout` (seconds) and `memory` (bytes) limit a contained pass; if `contained` is false, every pass runs in this
    process, for debugging. An exception at a site costs a standard pass that site; outside of a site, it becomes a
    `RaisedError`. Raises `SurgeryError` if the pass fails; the graph may then be partially changed.
    """
    graph.skip = skip
    graph.is_lenient = contained and declared.is_standard
    graph.limits = WorkerLimits(timeout, memory)
    if contained and not declared.is_standard:
        return _transform_in_fork(declared, graph, options, timeout, memory)
    try:
        with _begun(declared, graph):
            work(declared, options)(graph)
        # Standard passes edit only in sites. Any other pass may have changed the underlying model.
        untouched = declared.is_standard and all(site.skipped for site in graph.sites)
        proto = None if untouched else _export(graph)
    except SurgeryError:
        raise
    except Exception as error:
        require_machine(error)
        if graph.is_lenient:
            raise RaisedError(internal(error), "" if graph.at is None else Node(graph, graph.at).label) from error
        raise PassError(f"pass '{declared.name}' raised {raised(error, declared.file)}") from error
    return PassResult(
        proto,
        tuple(graph.sites),
        tuple(graph.refusals),
        live=True,
        renamed=dict(graph.renamed),
        accounts=tuple(graph.accounts),
        defects=tuple(graph.defects),
        remarks=tuple(graph.remarks),
    )


@contextmanager
def _begun(declared: Pass, graph: Graph) -> Iterator[None]:
    """Run a pass within the block, except at the sites in `graph.skip`, and restore the order of the graph after it."""
    graph.begin(declared.name, graph.skip)
    yield
    lost = next((node.name or node.op_type for node in graph.excepted if node.graph is None), "")
    if lost and declared.api == "Graph" and not declared.is_standard:
        what = f"pass '{declared.name}' removed '{lost}', which 'except' leaves alone, through the underlying model"
        raise PassError(what, todo="change nodes in sites only, or leave the step out")
    graph.finish(whole=not declared.is_standard)


def work(declared: Pass, options: Mapping[str, Any]) -> Callable[[Graph], object]:
    """Return the function that applies a pass, in any API, to a graph."""
    if declared.match:
        from surgery.model.patterns import rewrite_any

        return partial(rewrite_any, patterns=declared.match, function=declared.function, options=options)
    if declared.api == "Graph":
        return partial(declared.function, **options)
    from surgery.engine.bridges import whole

    return partial(whole.apply, declared, options=options)


def apply(declared: Pass, graph: Graph, options: Mapping[str, Any]) -> None:
    """Run a pass over a graph with bound options, in this process."""
    with _begun(declared, graph):
        work(declared, options)(graph)


def _export(graph: Graph) -> onnx.ModelProto:
    assert graph.weights is not None
    return storage.proto_from_ir(graph.ir, graph.weights)


def _transform_in_fork(
    declared: Pass,
    graph: Graph,
    options: Mapping[str, Any],
    timeout: float | None,
    memory: int | None,
) -> PassResult:
    import onnx

    assert graph.weights is not None
    # The fork writes to the scratch file opened here; a file of its own would disappear with it.
    graph.weights.open_scratch()

    def work() -> dict[str, Any]:
        try:
            apply(declared, graph, options)
        except SurgeryError as error:
            return {"error": pack_error(error), "refusals": _PACKER.pack(tuple(graph.refusals))}
        return {
            "model": _export(graph).SerializeToString(deterministic=True),
            "sites": _PACKER.pack(tuple(graph.sites)),
            "refusals": _PACKER.pack(tuple(graph.refusals)),
            "renamed": dict(graph.renamed),
            "accounts": _PACKER.pack(tuple(graph.accounts)),
            "remarks": list(graph.remarks),
        }

    limit = memory if memory is not None else default_memory()
    stage = f"pass '{declared.name}'"
    answer, printed = call_in_fork(work, stage=stage, timeout=timeout, memory=limit, home=declared.file)
    refusals = _PACKER.unpack(answer["refusals"])
    if "error" in answer:
        graph.refusals = [*refusals]
        problem = unpack_error(answer["error"])
        problem.printed = printed
        raise problem
    return PassResult(
        proto=onnx.load_model_from_string(answer["model"]),
        sites=_PACKER.unpack(answer["sites"]),
        refusals=refusals,
        live=False,
        printed=printed,
        renamed=answer["renamed"],
        accounts=_PACKER.unpack(answer["accounts"]),
        remarks=tuple(answer["remarks"]),
    )
