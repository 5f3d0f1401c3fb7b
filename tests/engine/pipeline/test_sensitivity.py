"""The choice of sites of a lossy step, and the multiply-accumulates of nodes that weigh them against each other."""

from __future__ import annotations

import math
from dataclasses import replace

import onnx
import pytest

from surgery.engine.pipeline import sensitivity
from surgery.engine.pipeline.candidate import Candidate
from surgery.engine.pipeline.sensitivity import Cost, SiteChooser, costs_by_label
from surgery.engine.pipeline.transaction import _with_kept
from surgery.engine.recipe import PassStep
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.graph.graph import Graph
from surgery.model.graph.state import Site
from surgery.verification.accuracy.loss_evaluation import Loss
from surgery.verification.accuracy.metrics import SAME
from surgery.verification.inputs.spec import MetricLimit

MODEL = """<ir_version: 10, opset_import: ["" : 17]>
g (float[batch,17,"2*n",24] x) => (float[R,8] y, float[batch,17,"2*n",8] z)
<float[24,8] w, int64[2] rows = {-1, 24}> {
    r = Reshape(x, rows)
    [flat] y = Gemm(r, w)
    [whole] z = MatMul(x, w)
}"""


def test_rows_joined_by_a_reshape_count_as_before() -> None:
    model = text.parse(MODEL.replace("float[24,8] w", f"float[24,8] w = {{{', '.join('1' * 192)}}}"))
    stored = storage.from_proto(model)
    costs = costs_by_label(Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights))
    # Each free dim counts as 16, and "2*n" is the name of one.
    assert costs["flat"].macs == costs["whole"].macs == 16 * 17 * 16 * 24 * 8


def test_sites_are_left_out_until_the_optimized_model_fits() -> None:
    """The search runs models without optimizations, but they are judged with them, and then round differently."""
    sites = tuple(Site(number, f"s{number}", (), ()) for number in range(1, 9))
    runs: list[bool] = []

    def run(skip: frozenset[int]) -> Candidate:
        found = tuple(replace(site, skipped=site.number in skip) for site in sites)
        return Candidate(PassStep("quantize"), onnx.ModelProto(), sites=found)

    def measure(candidate: Candidate, *, optimized: bool = False, sets: tuple[int, ...] = ()) -> Loss:
        runs.append(optimized)
        # The power of the error of site 8 is the largest; optimized, that of all sites is three times as large.
        noise = sum(site.number for site in candidate.applied) * (3e-4 if optimized else 1e-4)
        return Loss({"y": [{**SAME, "snr": -10 * math.log10(noise) if noise else math.inf}]})

    chooser = SiteChooser(run, measure, [MetricLimit("snr", 25.0)], {}, lambda what: None)
    found = chooser.choose(sites)
    assert found.candidate is not None
    converted = [site.number for site in found.candidate.applied]
    assert measure(found.candidate, optimized=True).use(chooser.limits) <= 1.0
    assert converted == [1, 2, 3, 4] and [one.site.number for one in found.kept] == [8, 7, 6, 5]
    assert runs.count(True) == 5


def test_sites_that_the_optimized_model_fails_with_say_so() -> None:
    """ONNX Runtime 1.24 cannot load some float16 models with its optimizations; the accuracy is not the reason."""
    sites = tuple(Site(number, f"s{number}", (), ()) for number in range(1, 5))

    def run(skip: frozenset[int]) -> Candidate:
        found = tuple(replace(site, skipped=site.number in skip) for site in sites)
        return Candidate(PassStep("quantize"), onnx.ModelProto(), sites=found)

    def measure(candidate: Candidate, *, optimized: bool = False, sets: tuple[int, ...] = ()) -> Loss:
        numbers = [site.number for site in candidate.applied]
        if optimized and 3 in numbers:
            return Loss({}, "a fusion broke")
        return Loss({"y": [{**SAME, "snr": 60.0 - sum(numbers)}]})

    found = SiteChooser(run, measure, [MetricLimit("snr", 25.0)], {}, lambda what: None).choose(sites)
    assert found.candidate is not None and [site.number for site in found.candidate.applied] == [1, 2]
    assert {one.site.number: one.why for one in found.kept} == {4: "a fusion broke", 3: "a fusion broke"}
    assert found.kept[0].to_json()["why"] == "a fusion broke"
    said = _with_kept("ok", found.kept)
    assert said.endswith("; with 2 of them, the converted model fails as deployed: a fusion broke")


def test_groups_are_split_down_to_single_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensitivity, "_MOST_UNITS", 4)
    sites = tuple(Site(number, f"s{number}", (), ()) for number in range(1, 7))

    def run(skip: frozenset[int]) -> Candidate:
        found = tuple(replace(site, skipped=site.number in skip) for site in sites)
        return Candidate(PassStep("quantize"), onnx.ModelProto(), sites=found)

    def measure(candidate: Candidate, *, optimized: bool = False, sets: tuple[int, ...] = ()) -> Loss:
        noise = len(candidate.applied) * 1e-3
        return Loss({"y": [{**SAME, "snr": -10 * math.log10(noise) if noise else math.inf}]})

    notes = list[str]()
    chooser = SiteChooser(run, measure, [MetricLimit("snr", 25.0)], {}, notes.append)
    found = chooser.choose(sites)
    assert {f"sensitivity of site {number} of 6" for number in range(1, 7)} <= set(notes)
    assert found.candidate is not None and len(found.candidate.applied) == 3


def test_what_moves_many_elements_is_worth_as_much_as_what_multiplies() -> None:
    """An Add that stays in float32 between two Convs in integers costs conversions and layouts."""
    sites = (Site(1, "conv", (), ()), Site(2, "add", (), ()))
    costs = {"conv": Cost(macs=1e6, elements=1e3), "add": Cost(elements=1e5)}

    def run(skip: frozenset[int]) -> Candidate:
        found = tuple(replace(site, skipped=site.number in skip) for site in sites)
        return Candidate(PassStep("quantize"), onnx.ModelProto(), sites=found)

    def measure(candidate: Candidate, *, optimized: bool = False, sets: tuple[int, ...] = ()) -> Loss:
        noise = len(candidate.applied) * 2e-3
        return Loss({"y": [{**SAME, "snr": -10 * math.log10(noise) if noise else math.inf}]})

    found = SiteChooser(run, measure, [MetricLimit("snr", 25.0)], costs, lambda what: None).choose(sites)
    assert found.candidate is not None
    assert [site.anchor for site in found.candidate.applied] == ["add"]
    assert [(one.site.anchor, one.macs) for one in found.kept] == [("conv", 1e6)]


def test_the_sites_and_the_time_left_are_shown() -> None:
    sites = tuple(Site(number, f"s{number}", (), ()) for number in range(1, 41))
    now, notes = [0.0], list[str]()

    def run(skip: frozenset[int]) -> Candidate:
        found = tuple(replace(site, skipped=site.number in skip) for site in sites)
        return Candidate(PassStep("quantize"), onnx.ModelProto(), sites=found)

    def measure(candidate: Candidate, *, optimized: bool = False, sets: tuple[int, ...] = ()) -> Loss:
        now[0] += 4.0
        return Loss({"y": [{**SAME, "snr": 10.0 if len(candidate.applied) > 1 else 60.0}]})

    limits = [MetricLimit("snr", 25.0)]
    SiteChooser(run, measure, limits, {}, notes.append, clock=lambda: now[0]).sensitivities(sites)
    assert len(notes) == 40
    assert notes[2] == "sensitivity of site 3 of 40"
    # 37 measurements of 4 seconds take 148, and three of them 12.
    assert notes[3] == "sensitivity of site 4 of 40, about 2 min left"
    assert notes[37] == "sensitivity of site 38 of 40, about 15 s left"
    assert now[0] == 41 * 4
