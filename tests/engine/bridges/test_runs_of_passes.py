"""A pass on a live graph: what is returned, in a fork or not, and what becomes of an exception."""

from __future__ import annotations

from typing import Any

import pytest

from surgery.base.errors import PassError, RaisedError, UsageError
from surgery.base.promises import Parity
from surgery.engine.bridges import run_pass as module
from surgery.engine.bridges.except_selectors import excepted_nodes
from surgery.engine.bridges.run_pass import run_pass
from surgery.engine.registry.passes import Pass
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.graph.graph import Graph

MODEL = "g (float[2] x) => (float[2] y) { [a] a = Identity(x) [b] b = Identity(a) [c] y = Neg(b) }"


def graph_of(source: str = MODEL) -> Graph:
    stored = storage.from_proto(text.parse(source))
    return Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)


def drop(graph: Graph) -> None:
    """Drop each Identity but the first."""
    for node in graph.nodes("Identity"):
        with graph.site(node) as new:
            new.require(node.name != "a", "it is the first")
            new.replace(node.outputs[0], node.required_input(0))
    graph.remarks.append("dropped")


def nothing(graph: Graph) -> None:
    """Do nothing."""


def fail(graph: Graph) -> None:
    """Raise at a node, outside of a site."""
    for node in graph.nodes("Identity"):
        raise KeyError(node.name)


def refuse(graph: Graph) -> None:
    """Raise an error of surgery."""
    with graph.site(graph.nodes()[0]) as new:
        new.require(False, "not here")
    raise UsageError("it cannot")


def remove(graph: Graph) -> None:
    """Remove a node through the underlying model."""
    node = graph.nodes("Identity")[0].ir
    node.outputs[0].replace_all_uses_with(node.inputs[0])
    graph.ir.graph.remove(node, safe=True)


def standard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pass, "is_standard", property(lambda self: True))


def declared(function: Any) -> Pass:
    return Pass("own", Parity.EXACT, "graph", function)


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The limits of forks, whose work is done in this process."""
    found: list[dict[str, Any]] = []

    def fork(work: Any, **more: Any) -> tuple[Any, str]:
        found.append(more)
        return work(), "printed"

    monkeypatch.setattr(module, "call_in_fork", fork)
    monkeypatch.setattr(module, "default_memory", lambda: 7)
    return found


@pytest.mark.parametrize(("contained", "live"), [(True, False), (False, True)])
def test_a_pass_of_the_user_runs_in_a_fork_if_it_is_contained(
    forks: list[dict[str, Any]], contained: bool, live: bool
) -> None:
    found = run_pass(declared(drop), graph_of(), {}, 3.0, contained=contained)
    assert found.proto is not None and [node.name for node in found.proto.graph.node] == ["a", "c"]
    assert [(site.number, site.anchor) for site in found.sites] == [(1, "b")]
    assert [(one.anchor, one.reason) for one in found.refusals] == [("a", "it is the first")]
    assert (found.live, found.remarks, found.printed) == (live, ("dropped",), "printed" if contained else "")
    stage = {"stage": "pass 'own'", "timeout": 3.0, "memory": 7, "home": declared(drop).file}
    assert forks == ([stage] if contained else [])
    run_pass(declared(drop), graph_of(), {}, None, 9)
    assert forks[-1]["memory"] == 9 and forks[-1]["timeout"] is None


def test_a_standard_pass_runs_here_and_is_lenient(monkeypatch: pytest.MonkeyPatch, forks: list[Any]) -> None:
    standard(monkeypatch)
    graph = graph_of()
    assert run_pass(declared(drop), graph, {}, 3.0, 9).live and forks == [] and graph.is_lenient
    assert (graph.limits.timeout, graph.limits.memory) == (3.0, 9)
    run_pass(declared(nothing), graph, {}, contained=False)
    assert not graph.is_lenient


def test_a_model_is_only_written_if_it_may_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_pass(declared(nothing), graph_of(), {}, contained=False).proto is not None
    standard(monkeypatch)
    assert run_pass(declared(nothing), graph_of(), {}).proto is None
    assert run_pass(declared(drop), graph_of(), {}, skip=frozenset({1})).proto is None
    found = run_pass(declared(drop), graph_of(), {}, skip=frozenset({1}))
    assert [(site.number, site.skipped) for site in found.sites] == [(1, True)]


def test_an_exception_names_the_node_of_a_standard_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PassError, match=r"^pass 'own' raised KeyError: 'a'") as error:
        run_pass(declared(fail), graph_of(), {}, contained=False)
    assert not isinstance(error.value, RaisedError)
    standard(monkeypatch)
    with pytest.raises(PassError, match=r"^pass 'own' raised KeyError"):
        run_pass(declared(fail), graph_of(), {}, contained=False)
    with pytest.raises(RaisedError, match="KeyError") as raised:
        run_pass(declared(fail), graph_of(), {})
    assert raised.value.at == "a"


@pytest.mark.usefixtures("forks")
def test_refusals_before_an_error_stay() -> None:
    for contained in (True, False):
        graph = graph_of()
        with pytest.raises(UsageError, match="it cannot"):
            run_pass(declared(refuse), graph, {}, contained=contained)
        assert [one.reason for one in graph.refusals] == ["not here"]


def test_a_node_that_is_left_alone_may_not_be_removed_through_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    for excepted, message in (("a", "removed 'a', which 'except' leaves alone"), ("b", None)):
        graph = graph_of()
        graph.excepted = excepted_nodes([excepted], graph)
        if message is None:
            run_pass(declared(remove), graph, {}, contained=False)
        else:
            with pytest.raises(PassError, match=message):
                run_pass(declared(remove), graph, {}, contained=False)
    standard(monkeypatch)
    graph = graph_of()
    graph.excepted = excepted_nodes(["a"], graph)
    run_pass(declared(remove), graph, {}, contained=False)
