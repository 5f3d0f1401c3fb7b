"""Pages of sensitivities and of speeds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.html_pages import checked

from surgery.interface import commands as cli
from surgery.interface.pages import measurement_pages

EVIL = "</script><b>\u202e"


def site(number: int, use: float | str, macs: float) -> dict[str, object]:
    metrics = {"snr": 40.5, "top1": "inf"}
    return {"site": number, "anchor": f"node{number}{EVIL}", "use": use, "metrics": metrics, "macs": macs}


STUDY = {
    "model": f"models/{EVIL}.onnx",
    "pass": "to-float16",
    "budget": ["snr >= 40 dB"],
    "use": "inf",
    "metrics": {"snr": "-inf", "top1": 0.75},
    "synthetic": True,
    "sites": [site(3, "inf", 10), site(1, 1.5, 1e6), site(2, 0.02, 5e6), site(4, 1e-9, 1e5), site(5, 0.0, 0)],
}


def test_sensitivities() -> None:
    page = checked(measurement_pages.sensitivity(STUDY))
    rows = [one for one in page.all("tr") if one.inside("tbody") and not one.inside("details")]
    assert ["does not run" in row.text for row in rows] == [True, False, False, False, False]
    assert "150 %" in rows[1].text and "2 %" in rows[2].text
    assert "more than all of the budget (snr >= 40 dB)" in page.text and "synthetic" in page.text
    bars = [one.attributes for one in page.all("rect") if one.attributes["class"] != "track"]
    assert [one["class"] for one in bars[:3]] == ["wrong", "wrong", "bar"]
    assert float(bars[1]["width"]) > float(bars[2]["width"]) > float(bars[3]["width"]) > float(bars[4]["width"]) == 0
    assert len(page.all("circle")) == 3 + 1  # the sites that use and compute something; one is in the button


def test_a_study_of_one_site_has_no_plot() -> None:
    page = checked(measurement_pages.sensitivity({**STUDY, "sites": [site(1, 0.5, 100)], "use": 0.5}))
    assert "50.0 % of the budget" in page.text and not page.all("figure")


def measured(name: str, seconds: float, ratio: float | None) -> dict[str, object]:
    speed = None if ratio is None else {"ratio": ratio, "low": ratio - 0.1, "high": ratio + 0.1}
    profile = [{"op": "MatMul", "seconds": seconds / 2, "nodes": 2, "share": 0.5}]
    memory = {"peak": 2_000_000, "run": 1_000_000}
    return {
        "name": name,
        "path": name,
        "seconds": seconds,
        "speed": speed,
        "session_seconds": 0.01,
        "bytes": 1000,
        "memory": memory,
        "profile": profile,
    }


def test_speeds() -> None:
    found = {
        "models": [measured("a.onnx", 2e-3, None), measured(EVIL, 1e-3, 2.0), measured("c", 4e-3, 0.5)],
        "level": 0.95,
        "threads": 1,
        "clock": "processor",
        "optimization": "all",
        "seed": 0,
        "rounds": 12,
        "calls": 1,
        "sessions": 2,
        "seconds": 3.0,
        "ended": "narrow",
        "inputs": [{"dims": {"batch": 2}, "character": "normal", "seed": 0}],
    }
    page = checked(measurement_pages.bench(found))
    dots = [float(one.attributes["cx"]) for one in page.all("circle") if one.attributes.get("class") == "dot"]
    assert len(dots) == 2 and dots[0] > dots[1]
    assert "1.900 to 2.100" in page.text and "intervals of 95% confidence" in page.text and "batch=2" in page.text
    assert [one.text for one in page.all("h3")] == [f"Operators of {EVIL[:-1]}\\u202e", "Operators of c"]
    alone = checked(measurement_pages.bench({**found, "models": found["models"][:1]}))
    assert not alone.all("figure") and "2 ms" in alone.text


def test_the_commands_write_them(short_models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, page = str(short_models / "resnet-tiny.onnx"), tmp_path / "speed.html"
    assert cli.main(["bench", model, model, "--repeats", "2", "--html", str(page), "--format", "json"]) == 0
    models = json.loads(capsys.readouterr().out)["models"]
    assert f"{models[1]['speed']['ratio']:.3f}" in checked(page.read_text(encoding="utf-8")).text
    assert cli.main(["bench", model, "--repeats", "2", "--html", str(page)]) == 2
    assert "--force" in capsys.readouterr().err
