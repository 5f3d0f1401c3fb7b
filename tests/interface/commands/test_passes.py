"""`surgery passes`: the list by themes, a part of it, and what is in JSON."""

import json
from typing import Any

import pytest

from surgery.engine.registry.catalog import catalog
from surgery.interface import commands as cli


def passes(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(["passes", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    code, out, _ = passes(capsys, *arguments, "--format", "json")
    assert code == 0
    return list(json.loads(out)["passes"])


def test_the_list_is_grouped_by_theme(capsys: pytest.CaptureFixture[str]) -> None:
    found = listed(capsys)
    assert {one["name"] for one in found} >= {name for name, one in catalog.passes().items() if one.is_standard}
    standard = [one["theme"] for one in found if catalog.find(one["name"]).is_standard]
    assert standard == sorted(standard)
    _, out, _ = passes(capsys)
    lines = out.splitlines()
    assert lines.index("cleanup") < next(n for n, line in enumerate(lines) if line.startswith("  drop-dead "))
    assert "surgery.passes" not in out


def test_a_theme_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert {one["theme"] for one in listed(capsys, "--theme", "shapes")} == {"shapes"}
    _, out, _ = passes(capsys, "--theme", "shapes")
    assert " from " not in out.splitlines()[0]  # nothing here is anybody else's
    code, out, err = passes(capsys, "--theme", "shape")
    assert code == 2 and out == ""
    assert "no theme 'shape'; did you mean 'shapes'?; there are attention, " in err


def test_tools_show_their_origin(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = passes(capsys, "--theme", "tools")
    assert " from " in out.splitlines()[0]
    tools = [one for one in catalog.passes().values() if one.requires]
    assert tools
    for one in tools:
        assert one.origin in out


def test_a_word_is_looked_for(capsys: pytest.CaptureFixture[str]) -> None:
    found = listed(capsys, "Transpose")
    assert {"merge-transposes", "push-transposes"} <= {one["name"] for one in found}
    assert all("transpose" in f"{one['name']} {one['summary']}".lower() for one in found)
    assert {one["theme"] for one in listed(capsys, "conv", "--theme", "weights")} == {"weights"}
    code, _, err = passes(capsys, "fuse-conv-bnn")
    assert code == 2 and "did you mean 'fuse-conv-bn'?" in err


def test_json_has_all_fields(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = [one for one in listed(capsys, "fold-con") if one["name"] == "fold-constants"]
    assert found["origin"] == "surgery" and found["theme"] == "constants" and found["api"] == "Graph"
    assert found["place"].partition(":")[0].endswith("constants/fold_constants.py")
    option = found["options"][0]
    assert option["name"] == "max_growth" and option["type"] == "size" and option["default"] == 2_000_000
    assert not option["required"] and option["about"]
