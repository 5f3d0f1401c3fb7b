"""Which values inside two models are compared, in which rounds, and what that shows; their verdicts are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from surgery.model.graph import text
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.regions import intermediate
from surgery.verification.regions.intermediate import InnerEvidence, examine

AGREES, DIFFERS = Verdict(Status.EQUAL), Verdict(Status.DIFFERENT, message="it differs")
CLOSE = Verdict(Status.CLOSE, needed={"rtol": 1.0, "atol": 2.0})
CHAIN = "a = Neg(x) b = Exp(a) c = Log(b) d = Sin(c) e = Cos(d) y = Tan(e)"


def _data(body: str, outputs: str = "float[2] y") -> bytes:
    return text.parse(f"g (float[2] x) => ({outputs}) {{ {body} }}").SerializeToString()


class _Search:
    """A search among values whose verdicts are known, and what it asked."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        verdicts: Mapping[str, Verdict],
        heirs: Mapping[str, str] | None = None,
        clearing: Sequence[str] = (),
        hidden: Sequence[str] = (),
        regions: Sequence[Any] = (),
    ) -> None:
        self.asked: list[Any] = []
        self.tried: list[set[str]] = []

        search = self

        class Inside:
            def __init__(self, before: Any, after: Any, names: set[str], setting: Any) -> None:
                self.eligible = names - {*hidden}

            def compare(self, names: Sequence[str]) -> dict[str, Verdict]:
                search.asked.append([*names])
                return {name: verdicts[name] for name in names if name in verdicts}

            def clearing(self, differing: Sequence[str], agreeing: Sequence[str]) -> set[str]:
                search.asked.append(("clearing", [*differing], [*agreeing]))
                return {*clearing} & {*agreeing}

            def heir(self, name: str, values: Sequence[str]) -> str | None:
                search.asked.append(("heir", name, [*values]))
                return (heirs or {}).get(name)

        class Trials:
            def __init__(self, *_: Any) -> None:
                pass

            def find(self, targets: set[str]) -> Sequence[Any]:
                search.tried.append(targets)
                return regions

        monkeypatch.setattr(intermediate, "Inside", Inside)
        monkeypatch.setattr(intermediate, "RegionTrials", Trials)

    def run(
        self, after: str, before: str = CHAIN, vacuous: Sequence[str] = ("y",), outputs: str = "float[2] y"
    ) -> InnerEvidence:
        setting: Any = SimpleNamespace(vacuous=dict.fromkeys(vacuous, "is zero"))
        return examine(_data(before, outputs), _data(after, outputs), setting)


def test_nothing_is_compared_without_a_change_above_an_empty_output(monkeypatch: pytest.MonkeyPatch) -> None:
    search = _Search(monkeypatch, {})
    found = search.run(CHAIN)
    assert not search.asked and not search.tried and not found.changed and found.agrees
    two = f"{CHAIN} z = Abs(x)"
    found = search.run(two.replace("Abs", "Relu"), two, outputs="float[2] y, float[2] z")
    assert not search.asked and not found.changed
    assert found.empty == "'y' is zero"


def test_the_nearest_value_shows_that_a_change_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    search = _Search(monkeypatch, {"b": CLOSE})
    found = search.run(CHAIN.replace("Exp", "Erf"))
    assert search.asked == [["b"]] and not search.tried
    assert (found.changed, found.agreeing, found.needed, found.open) == (True, ("b",), CLOSE.needed, ())
    assert found.agrees and found.differing is None


def test_values_further_down_are_tried_if_the_nearest_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    search = _Search(monkeypatch, {"e": AGREES})
    found = search.run(CHAIN.replace("Neg", "Abs"))
    assert search.asked == [["a"], ["b", "c", "d"], ["e"]]
    assert found.agreeing == ("e",) and found.needed is None and found.agrees
    search = _Search(monkeypatch, {"e": AGREES}, hidden=["a", "b"])
    search.run(CHAIN.replace("Neg", "Abs"))
    assert search.asked == [["c"], ["d", "e"]]


def test_what_nothing_shows_is_tried_with_other_values(monkeypatch: pytest.MonkeyPatch) -> None:
    after = CHAIN.replace("Sin", "Abs")
    search = _Search(monkeypatch, {})
    found = search.run(after)
    assert search.asked == [["d"], ["e"]] and search.tried == [{"y"}]
    assert found.open == ("Abs 'd'", "the removed Sin 'd'") and not found.agrees
    region = SimpleNamespace(after={3}, before={3}, outputs=["y"], needed={"rtol": 3.0, "atol": 1.0})
    search = _Search(monkeypatch, {}, regions=[region])
    found = search.run(after)
    assert (found.open, found.drawn, found.needed) == ((), ("y",), region.needed) and found.agrees


def test_a_value_that_differs_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    search = _Search(monkeypatch, {"b": DIFFERS})
    found = search.run(CHAIN.replace("Exp", "Erf"))
    assert search.asked[:2] == [["b"], ["c", "d", "e"]] and not search.tried
    assert found.differing is DIFFERS and not found.agrees
    assert found.open == ("Erf 'b'", "the removed Exp 'b'", "'b', which differs")


def test_a_later_value_may_clear_one_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = {"b": DIFFERS, "c": AGREES}
    search = _Search(monkeypatch, verdicts, clearing=["c"])
    # Two changes: the second one takes back what the first one does. The value in between differs.
    found = search.run(CHAIN.replace("Exp", "Erf").replace("Log", "Ceil"))
    assert search.asked == [["b", "c"], ("clearing", ["b"], ["c"])]
    assert found.agrees and found.agreeing == ("c",) and found.differing is None
    # An agreeing value that does not depend on it clears nothing: `b` differs as before. But then all that is computed
    # from it agrees, so it is not sure to be wrong.
    search = _Search(monkeypatch, verdicts)
    found = search.run(CHAIN.replace("Exp", "Erf").replace("Log", "Ceil"))
    assert ("heir", "b", ["c", "d", "e", "y"]) in search.asked
    assert found.differing is None and found.open == ("'b', which differs",) and not found.agrees


def test_values_after_a_differing_one_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    # `z` shows that both changes are right, so no node is open; what is left to explain is `b`.
    before = "a = Neg(x) b = Exp(a) c = Log(b) d = Sin(c) y = Tan(d) z = Cos(b)"
    search = _Search(monkeypatch, {"b": DIFFERS, "d": AGREES, "c": AGREES}, clearing=["c", "d"])
    found = search.run(before.replace("Exp", "Erf"), before, outputs="float[2] y, float[2] z")
    assert search.asked == [["b"], ["c", "d"], ("clearing", ["b"], ["c", "d"])]
    assert found.agrees and found.agreeing == ("c", "d")


def test_a_differing_value_that_no_empty_output_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    before = "a = Neg(x) b = Exp(a) y = Log(b) z = Sin(b)"
    after = before.replace("Exp", "Erf")
    search = _Search(monkeypatch, {"b": DIFFERS})
    assert search.run(after, before, outputs="float[2] y, float[2] z").differing is DIFFERS
    assert search.run(after, before, ["z"], "float[2] y, float[2] z").differing is DIFFERS
    aside = "a = Neg(x) b = Exp(a) y = Log(a) z = Sin(b)"
    found = search.run(aside.replace("Neg", "Abs"), aside, ["y"], "float[2] y, float[2] z")
    assert found.differing is None


def test_a_name_may_refer_to_a_later_value(monkeypatch: pytest.MonkeyPatch) -> None:
    # A tool that fuses two nodes gave the result the name of the first.
    search = _Search(monkeypatch, {"b": DIFFERS}, heirs={"b": "c"})
    found = search.run(CHAIN.replace("b = Exp(a) c = Log(b) d = Sin(c)", "b = Relu(a) d = Sin(b)"))
    assert ("heir", "b", ["c", "d", "e", "y"]) in search.asked
    assert found.agreeing == ("b",) and found.differing is None and found.open == () and found.agrees


def test_unrelated_models_and_irrelevant_signs_are_no_sure_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    other = "a = Abs(x) b = Erf(a) c = Ceil(b) d = Cos(c) e = Floor(d) y = Tan(e)"
    search = _Search(monkeypatch, {"a": DIFFERS})
    found = search.run(other)
    assert found.differing is None and "'a', which differs" in found.open
    search = _Search(monkeypatch, {"b": DIFFERS, "c": AGREES})
    found = search.run(CHAIN.replace("Exp", "Erf"))
    assert found.differing is None and found.open == ("'b', which differs",)


def test_many_changes_are_spread_over_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intermediate, "MOST", 2)
    search = _Search(monkeypatch, dict.fromkeys("abcde", AGREES))
    found = search.run(CHAIN.replace("Neg", "Abs").replace("Log", "Ceil").replace("Cos", "Floor"))
    assert search.asked == [["a", "e"]] and found.agreeing == ("a", "e") and found.agrees
