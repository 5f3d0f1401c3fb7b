"""A sample of the suite: wrong rewrites are refused, right ones are not. The whole is for `measure.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx
import pytest
from support import lacking
from support.breadth import sampled

from mutation import check, handmade, sources, suite
from mutation.draft import Unfit
from mutation.judge import Judge, Judgement
from mutation.kinds import KINDS
from mutation.suite import HAND, Mutant

SUITE = suite.read()
SURVIVORS = suite.survivors()
KNOWN = {*sources.names(), *(f"wrong/{name}" for name in handmade.WRONG)}
SAMPLE = [
    mutant
    for mutant in SUITE[:: len(SUITE) // 20]
    # An older onnx brings fewer models of its own.
    if str(mutant) not in SURVIVORS and (mutant.source in KNOWN or not lacking.are_old())
]
RIGHT = [
    *check.sampled(check.by_hand(), 9),
    *check.sampled(check.case_files(), 45),
    *check.sampled(check.rebuilt(), 85),
    *check.sampled(check.passes(), 61),
]


@pytest.fixture(autouse=True, scope="module")
def _no_chain_stays_open() -> Iterator[None]:
    yield
    check.close()


@pytest.mark.parametrize("mutant", sampled(SAMPLE, 3), ids=str)
def test_a_wrong_rewrite_is_refused(mutant: Mutant) -> None:
    judge = Judge(sources.load(mutant.source))
    judgement = judge.judge(mutant.build(), mutant.promise)
    judge.close()
    assert not judgement.accepted, judgement


@pytest.mark.parametrize(("what", "run"), sampled(RIGHT, 5), ids=[what for what, _ in RIGHT])
def test_a_right_rewrite_is_not_refused(what: str, run: Callable[[], Judgement | None]) -> None:
    judgement = run()
    assert judgement is None or judgement.accepted, judgement


def test_the_suite_is_large_and_varied() -> None:
    assert len(SUITE) >= 300
    assert len({str(mutant) for mutant in SUITE}) == len(SUITE)
    assert {mutant.kind for mutant in SUITE} == {*KINDS, HAND}
    assert {mutant.promise for mutant in SUITE} == {"exact", "close"}
    for group in ("bundled/", "case/", "node/", "pytorch-", "simple/", "wrong/"):
        assert any(mutant.source.startswith(group) for mutant in SUITE), group


def test_each_mutated_model_exists() -> None:
    assert lacking.are_old() or {mutant.source for mutant in SUITE} <= KNOWN


def test_survivors_are_few_and_each_has_a_reason() -> None:
    assert {str(mutant) for mutant in SUITE} >= set(SURVIVORS)
    assert len(SURVIVORS) <= len(SUITE) // 100
    assert all(SURVIVORS.values())


@pytest.mark.parametrize("mutant", SAMPLE[::3], ids=str)
def test_mutants_are_reproducible_and_differ_from_the_original(mutant: Mutant) -> None:
    one, other = (mutant.build().SerializeToString(deterministic=True) for _ in range(2))
    assert one == other
    assert one != sources.base(mutant.source).SerializeToString(deterministic=True)


def test_a_mutation_without_a_target_is_unfit() -> None:
    with pytest.raises(Unfit):
        Mutant("exact", 0, "bundled/resnet-tiny.onnx", "branches of an If swapped").build()


def test_pairs_by_hand_are_valid_models() -> None:
    for pair in handmade.WRONG.values():
        onnx.checker.check_model(pair.original(), full_check=True)
