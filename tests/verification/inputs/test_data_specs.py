"""Settings for inputs, as recipes and the command line give them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surgery.base.errors import UsageError
from surgery.verification.inputs.spec import DataSpec, ImageSpec, InputsSpec, MetricSpec, Place, VerifySpec


@pytest.mark.parametrize(
    ("text", "path", "function"),
    [
        ("sets.py:make", "sets.py", "make"),
        ("C:sets.py:make", "C:sets.py", "make"),
        ("sets.py", "sets.py", ""),
        ("sets.py:", "sets.py:", ""),
        ("sets.py:2", "sets.py:2", ""),
        ("sets.npz:make", "sets.npz:make", ""),
        ("make", "make", ""),
    ],
)
def test_a_path_or_a_function_of_a_file(text: str, path: str, function: str) -> None:
    found = DataSpec.of(text)
    assert (found.path, found.function, found.images) == (Path(path), function, None)
    assert found.title == (f"{path}:{function}" if function else path)
    assert found.written() == (f"{path}:{function}" if function else Path(path))
    assert DataSpec.of(text, ImageSpec()).images == (None if function else ImageSpec())


def test_sets_given_in_python() -> None:
    spec, arrays = DataSpec(Path("a")), {"x": np.ones(1)}
    found = DataSpec.each([spec, arrays, "b.npz", Path("c.npz"), arrays])
    assert found[0] is spec
    assert [str(one.path) for one in found] == ["a", "inputs 2", "b.npz", "c.npz", "inputs 5"]
    assert found[1].arrays is arrays and found[2].arrays is None
    assert [str(one.path) for one in DataSpec.each("b.npz")] == ["b.npz"] and DataSpec.each(()) == ()
    with pytest.raises(UsageError, match="an object of type int is no set of inputs"):
        DataSpec.each([3])


def test_images_are_written_with_the_options_that_differ() -> None:
    images = ImageSpec(mean=(0.5, 0.4, 0.3), size=(224, 192), limit=7)
    expected: dict[str, Any] = {"mean": [0.5, 0.4, 0.3], "size": [224, 192], "limit": 7}
    assert images.unusual == expected and ImageSpec().unusual == {}
    assert DataSpec(Path("photos"), images=images).written(str) == {"images": "photos", **expected}
    assert (ImageSpec().limit, ImageSpec().mean, ImageSpec().std) == (128, (0.0,), (1.0,))


def test_where_a_set_is_named_and_what_it_holds_does_not_make_it_another() -> None:
    place = Place("r.yaml", 1, 2)
    assert DataSpec(Path("a"), {"x": 1}, place=place) == DataSpec(Path("a"))
    assert DataSpec(Path("a"), found=True) != DataSpec(Path("a")) != DataSpec(Path("b"))


def test_a_metric_as_a_recipe_writes_it() -> None:
    metric = MetricSpec(Path("folder/m.py"), "score", 0.015)
    assert (metric.title, metric.allowed) == ("m.py:score", "0.015") and not metric.relative and not metric.lower
    assert MetricSpec(Path("m.py"), "score", 0.015, relative=True).allowed == "1.5 %"


def test_the_usual_verification() -> None:
    spec = VerifySpec()
    assert (spec.mode, spec.unverified, spec.compare, spec.deployment) == ("each", "refuse", "region", "end")
    assert (spec.seed, spec.timeout, spec.memory, spec.setup.providers) == (0, 300.0, None, ())
    assert not InputsSpec().only_given and InputsSpec().calibration.sets is None
