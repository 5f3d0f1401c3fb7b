"""Files that are no statements of provenance, or damaged ones: refused in one line, whatever is in them."""

from __future__ import annotations

import json
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import onnx
import pytest

from surgery.base.errors import UsageError
from surgery.engine.provenance import checking, statement
from surgery.engine.provenance.statement_writing import Made, save
from surgery.engine.recipe import single_step
from surgery.interface import commands as cli
from surgery.model import storage


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "this is not a provenance statement"),
        ("[]", "this is not a provenance statement by surgery"),
        ('{"subject": []}', "this is not a provenance statement by surgery"),
        ('{"payload": "!", "signatures": []}', "the envelope is damaged"),
        ('{"payload": "e30=", "payloadType": "text/plain", "signatures": []}', "holds 'text/plain', not a statement"),
    ],
)
def test_a_file_that_is_not_a_statement(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(UsageError, match=expected):
        checking.read(tmp_path / "s.json")


def _places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(found for key, one in inner for found in _places(one, (*place, key)))]


WRONG: list[Any] = [None, {}, "text", 0, 1.5, True, "", [], [[]], [None], {"name": 1}, {"sha256": 3}, "é\ud800"]


QUICK = 1


@pytest.mark.parametrize(
    "wrong", [*WRONG[:QUICK], *(pytest.param(one, marks=pytest.mark.slow) for one in WRONG[QUICK:])], ids=repr
)
def test_a_damaged_statement_never_crashes_the_command(
    tmp_path: Path, wrong: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    stored = storage.from_proto(model)
    made = Made(single_step("drop-identity"), [{"pass": "drop-identity", "sites": 2, "verdict": "equal"}], "equal")
    save(stored.proto, tmp_path / "out.onnx", stored, made)
    text = str(statement.carried(onnx.load(tmp_path / "out.onnx")))
    places = [place for place in _places(json.loads(text)) if place]
    side = tmp_path / "damaged.json"
    for place in places:
        found = json.loads(text)
        reduce(getitem, place[:-1], found)[place[-1]] = wrong
        side.write_text(json.dumps(found))
        code = cli.main(["provenance", str(tmp_path / "out.onnx"), "--statement", str(side)])
        assert code in ((0,) if reduce(getitem, place, json.loads(text)) == wrong else (1, 2)), (
            place,
            capsys.readouterr().err,
        )


def test_a_statement_that_nests_too_deeply(tmp_path: Path) -> None:
    side = tmp_path / "deep.json"
    side.write_text('{"a":' * 100_000 + "1" + "}" * 100_000)
    with pytest.raises(UsageError, match="this is not a provenance statement"):
        checking.read(side)
