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

from surgery import storage
from surgery.errors import PassError, SurgeryError
from surgery.graph.graph import Graph
from surgery.graph.signature_mappings import SignatureMapping, pack, unpack
from surgery.graph.state import Limits, Refused, Site
from surgery.workers import default_memory
from surgery.workers.fork import call_in_fork

if TYPE_CHECKING:
    import onnx

    from surgery.registry.passes import Pass


@dataclass(frozen=True)
class PassResult:
    """What a pass made of a graph; `proto` is None where it applied nothing.

    `live` tells whether the graph itself holds it; otherwise that is as it was. `renamed` says what inputs and outputs
    are called now, `accounts` how they follow from those before.
    """

    proto: onnx.ModelProto | None
    sites: tuple[Site, ...]
    refusals: tuple[Refused, ...]
    live: bool
    printed: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)
    accounts: tuple[SignatureMapping, ...] = ()


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
    """Run a pass over a graph whose weights are stored, without the sites to `skip`.

    `timeout` (seconds) and `memory` (bytes) bound a contained pass; with `contained` false every pass runs here, for
    a debugger. Raises `SurgeryError` when the pass could not do its work, and the graph may then be half changed.
    """
    graph.skip = skip
    graph.limits = Limits(timeout, memory)
    if contained and not declared.is_standard:
        return _transform_in_fork(declared, graph, options, timeout, memory)
    try:
        with _begun(declared, graph):
            _work(declared, options)(graph)
        # Standard passes edit by sites alone. Any other may have worked on the graph below.
        untouched = declared.is_standard and all(site.skipped for site in graph.sites)
        proto = None if untouched else _export(graph)
    except SurgeryError:
        raise
    except Exception as error:
        raise PassError(_tell(declared, error)) from error
    return PassResult(
        proto,
        tuple(graph.sites),
        tuple(graph.refusals),
        live=True,
        renamed=dict(graph.renamed),
        accounts=tuple(graph.accounts),
    )


@contextmanager
def _begun(declared: Pass, graph: Graph) -> Iterator[None]:
    """Let a pass work on a graph, but for the sites in `graph.skip`, and leave the graph in order."""
    graph.begin(declared.name, graph.skip)
    yield
    graph.finish(whole=not declared.is_standard)


def _work(declared: Pass, options: Mapping[str, Any]) -> Callable[[Graph], object]:
    """Return what a pass does to a graph, in whatever API it is written."""
    if declared.match:
        from surgery.patterns import rewrite_any

        return partial(rewrite_any, patterns=declared.match, function=declared.function, options=options)
    if declared.api == "Graph":
        return partial(declared.function, **options)
    from surgery.bridges import whole

    return partial(whole.apply, declared, options=options)


def apply(declared: Pass, graph: Graph, options: Mapping[str, Any]) -> None:
    """Run a pass over a graph with bound options, in this process."""
    with _begun(declared, graph):
        _work(declared, options)(graph)


def _export(graph: Graph) -> onnx.ModelProto:
    assert graph.weights is not None
    return storage.proto_from_ir(graph.ir, graph.weights)


def _tell(declared: Pass, error: Exception) -> str:
    """Return in one line what an exception means that ended a pass."""
    if isinstance(error, SurgeryError):
        return str(error)
    text = " ".join(str(error).split())
    return f"pass '{declared.name}' raised {type(error).__name__}{f': {text}' if text else ''}"


def _transform_in_fork(
    declared: Pass,
    graph: Graph,
    options: Mapping[str, Any],
    timeout: float | None,
    memory: int | None,
) -> PassResult:
    import onnx

    assert graph.weights is not None
    # The fork writes to the file that is open here; one of its own would go with it.
    graph.weights.open_scratch()

    def work() -> dict[str, Any]:
        try:
            apply(declared, graph, options)
            proto = _export(graph)
        except MemoryError:
            raise
        except Exception as error:
            return {"problem": _tell(declared, error)}
        return {
            "model": proto.SerializeToString(deterministic=True),
            "sites": [[s.number, s.anchor, s.removed, s.added, s.skipped] for s in graph.sites],
            "refusals": [[refused.anchor, refused.reason] for refused in graph.refusals],
            "renamed": dict(graph.renamed),
            "accounts": pack(tuple(graph.accounts)),
        }

    limit = memory if memory is not None else default_memory()
    answer, printed = call_in_fork(work, stage=f"pass '{declared.name}'", timeout=timeout, memory=limit)
    if "problem" in answer:
        raise PassError(answer["problem"])
    return PassResult(
        proto=onnx.load_model_from_string(answer["model"]),
        sites=tuple(
            Site(n, anchor, tuple(gone), tuple(new), skipped) for n, anchor, gone, new, skipped in answer["sites"]
        ),
        refusals=tuple(Refused(anchor, reason) for anchor, reason in answer["refusals"]),
        live=False,
        printed=printed,
        renamed=answer["renamed"],
        accounts=unpack(answer["accounts"]),
    )
