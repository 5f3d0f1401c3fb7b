"""The formats for other tools, held to what those tools accept."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest

from surgery.base.errors import ModelFileError, Problem, RecipeError
from surgery.interface.report.formats.github import github
from surgery.interface.report.formats.junit import junit
from surgery.interface.report.formats.markdown import code, markdown
from surgery.interface.report.formats.outcome import Check, Outcome, Root, SummaryTable, placed, unique
from surgery.interface.report.formats.sarif import sarif
from surgery.interface.report.outcomes import of_error

EVIL = (
    "</summary><script>alert(1)</script> @all #1 [x](http://e.vil) ![i](x) `` ``` | *b* \x1b[31m\u202e\r\n"
    "::error::x%\x00\ufffe\ud800]]>&amp;"
)
NAMES = ["<b>", "a|b", "`", "```", "@team", "x" * 10_000, "\x1b]0;t\x07", "\u202eabc", "a\n::stop-commands::b", EVIL]


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path.resolve())


def outcome(*checks: Check, exit_code: int = 0, **more) -> Outcome:
    return Outcome("apply", "default on m.onnx", "ok: 3 -> 2 nodes", exit_code, checks, **more)


def check(level="failed", message="it broke", **more) -> Check:
    return Check("fuse-gelu", "fuse-gelu", level, message, **more)


# GitHub


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """Read workflow commands as the runner does."""
    found = []
    for line in text.splitlines():
        kind, properties, message = re.fullmatch(r"::(error|warning|notice) (.*?)::(.*)", line).groups()
        given = dict(item.split("=", 1) for item in properties.split(","))
        for old, new in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
            given = {key: value.replace(old, new) for key, value in given.items()}
            message = message.replace(old, new) if old not in ("%3A", "%2C") else message
        found.append((kind, given, message))
    return found


def test_an_annotation_has_the_place_in_the_recipe(root: Root) -> None:
    path = str(root.folder / "ci" / "r,1.yaml")
    text = github(outcome(check(message="50 %: a\nb", path=path, line=7, column=5), exit_code=1), root)
    assert text.splitlines()[0] == "::error file=ci/r%2C1.yaml,line=7,col=5,title=fuse-gelu::50 %25: a%0Ab"
    (first, last) = commands(text)
    assert first == ("error", {"file": "ci/r,1.yaml", "line": "7", "col": "5", "title": "fuse-gelu"}, "50 %: a\nb")
    assert last == ("notice", {"title": "surgery apply: default on m.onnx"}, "ok: 3 -> 2 nodes")


def test_a_place_outside_of_the_repository_is_in_the_message(root: Root) -> None:
    ((_, given, message), _) = commands(github(outcome(check("undone", path="/etc/r.yaml", line=3)), root))
    assert "file" not in given and message == "/etc/r.yaml:3: it broke"


@pytest.mark.parametrize(
    ("level", "kind"), [("failed", "error"), ("broken", "error"), ("undone", "warning"), ("remark", "warning")]
)
def test_the_kinds_of_annotations(level, kind, root: Root) -> None:
    assert commands(github(outcome(check(level)), root))[0][0] == kind


def test_only_findings_are_annotated_and_each_only_once(root: Root) -> None:
    found = commands(github(outcome(check("passed"), check("skipped"), check("undone"), check("undone")), root))
    assert [kind for kind, *_ in found] == ["warning", "notice"]


def test_a_failure_without_findings_is_an_error(root: Root) -> None:
    assert [kind for kind, *_ in commands(github(outcome(exit_code=1), root))] == ["error"]


@pytest.mark.parametrize("name", NAMES)
def test_no_name_gives_a_separate_command(name: str, root: Root) -> None:
    text = github(outcome(Check(name, name, "failed", name, name, 1), exit_code=1), root)
    assert len(text.splitlines()) == len(commands(text)) == 2
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", text)


# JUnit

# The structure of the XSD that Jenkins and Surefire share: attributes, and children.
COUNTS = ("tests", "failures", "errors")
JUNIT = {
    "testsuites": ({"name", "time", "disabled", *COUNTS}, set(), {"testsuite"}),
    "testsuite": (
        {"name", "time", "skipped", "timestamp", "hostname", "id", "package", "disabled", *COUNTS},
        {"name", "tests"},
        {"properties", "testcase", "system-out", "system-err"},
    ),
    "testcase": (
        {"name", "classname", "time", "assertions", "status"},
        {"name", "classname"},
        {"skipped", "error", "failure", "system-out", "system-err"},
    ),
    "skipped": ({"message", "type"}, set(), set()),
    "failure": ({"message", "type"}, {"type"}, set()),
    "error": ({"message", "type"}, {"type"}, set()),
    "system-out": (set(), set(), set()),
}


def parsed(text: str) -> ElementTree.Element:
    root = ElementTree.fromstring(text.encode())
    for element in root.iter():
        allowed, required, children = JUNIT[element.tag]
        assert required <= set(element.attrib) <= allowed, element.tag
        assert {child.tag for child in element} <= children
        for name in ("tests", "failures", "errors", "skipped"):
            assert element.get(name, "0").isdecimal()
        if "time" in element.attrib:
            assert float(element.attrib["time"]) >= 0
    for suite in root:
        cases = suite.findall("testcase")
        assert (
            len({(case.get("classname"), case.get("name")) for case in cases}) == len(cases) == int(suite.get("tests"))
        )
        for tag, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert sum(case.find(tag) is not None for case in cases) == int(suite.get(name))
    return root


def test_each_check_is_a_case() -> None:
    levels = ["passed", "skipped", "remark", "undone", "failed", "broken"]
    root = parsed(junit(outcome(*(check(level, path="r.yaml", line=2) for level in levels), exit_code=3)))
    cases = root.findall("testsuite/testcase")
    assert [case.get("name") for case in cases] == ["fuse-gelu", *(f"fuse-gelu #{n}" for n in range(2, 7))]
    assert [case[0].tag for case in cases] == ["system-out", "skipped", "system-out", "skipped", "failure", "error"]
    assert cases[4][0].text == "r.yaml:2: it broke" and cases[4][0].get("message") == "it broke"
    assert cases[0].get("classname") == "surgery.apply.default_on_m_onnx"


@pytest.mark.parametrize("name", NAMES)
def test_no_name_breaks_the_document(name: str) -> None:
    found = Check(name, name, "failed", name, name, 1, nodes=(name,))
    root = parsed(junit(Outcome("apply", name, name, 1, (found,))))
    assert root.find("testsuite/testcase/failure").get("type")


# SARIF

LOCATION = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "physicalLocation": {
            "type": "object",
            "required": ["artifactLocation"],
            "additionalProperties": False,
            "properties": {
                "artifactLocation": {
                    "type": "object",
                    "required": ["uri"],
                    "additionalProperties": False,
                    "properties": {
                        "uri": {"type": "string", "pattern": r"^(file:///|(?!/)[A-Za-z0-9._~%/-]+$)"},
                        "uriBaseId": {"const": "%SRCROOT%"},
                    },
                },
                "region": {
                    "type": "object",
                    "required": ["startLine"],
                    "additionalProperties": False,
                    "properties": {"startLine": {"minimum": 1}, "startColumn": {"minimum": 1}},
                },
            },
        },
        "logicalLocations": {"type": "array", "items": {"required": ["name", "fullyQualifiedName", "kind"]}},
    },
}
TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}
# What is used of SARIF 2.1.0, section 3, with what the standard and GitHub require.
SARIF = {
    "type": "object",
    "required": ["$schema", "version", "runs"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string"},
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "additionalProperties": False,
                "properties": {
                    "tool": {
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "required": ["name", "rules", "version"],
                                "properties": {
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {
                                            "required": ["id", "shortDescription"],
                                            "properties": {"id": {"minLength": 1}, "shortDescription": TEXT},
                                        },
                                    }
                                },
                            }
                        },
                    },
                    "automationDetails": {"required": ["id"]},
                    "originalUriBaseIds": {
                        "additionalProperties": {"properties": {"uri": {"pattern": "^file:///.*/$"}}}
                    },
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "invocations": {"type": "array", "items": {"required": ["executionSuccessful"]}},
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["message", "ruleId", "ruleIndex"],
                            "additionalProperties": False,
                            "properties": {
                                "ruleId": {"type": "string"},
                                "ruleIndex": {"type": "integer", "minimum": 0},
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": TEXT,
                                "locations": {"type": "array", "items": LOCATION},
                                "partialFingerprints": {"additionalProperties": {"type": "string"}},
                            },
                        },
                    },
                },
            },
        },
    },
}


def valid(found: dict) -> dict:
    jsonschema.validate(json.loads(json.dumps(found)), SARIF)
    (run,) = found["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(set(rules)) == len(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
    return run


def test_a_result_has_its_place_and_its_nodes(root: Root) -> None:
    path = str(root.folder / "a b.yaml")
    found = check("undone", path=path, line=7, column=5, model="/m/x.onnx", nodes=("/l/Erf",), about="Fuses Gelu.")
    run = valid(sarif(outcome(found, check("passed")), "1.0", root))
    (result,) = run["results"]
    place = result["locations"][0]
    assert place["physicalLocation"]["artifactLocation"] == {"uri": "a%20b.yaml", "uriBaseId": "%SRCROOT%"}
    assert place["physicalLocation"]["region"] == {"startLine": 7, "startColumn": 5}
    assert place["logicalLocations"][0]["fullyQualifiedName"] == "x.onnx//l/Erf"
    assert result["level"] == "warning" and run["invocations"][0] == {"executionSuccessful": True, "exitCode": 0}
    assert run["tool"]["driver"]["rules"][0]["shortDescription"] == {"text": "Fuses Gelu."}


def test_a_finding_keeps_its_fingerprint_when_lines_move(root: Root) -> None:
    def fingerprints(*found: Check) -> list[str]:
        run = valid(sarif(outcome(*found), "1.0", root))
        return [result["partialFingerprints"]["surgery/v1"] for result in run["results"]]

    (before,) = fingerprints(check(path="r.yaml", line=3))
    after, other = fingerprints(check(path="r.yaml", line=9), check(path="r.yaml", line=9, nodes=("n",)))
    assert before == after != other


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_valid_sarif(name: str, root: Root) -> None:
    found = Check(name, name, "failed", name, "r.yaml", 1, nodes=(name,), about=name)
    valid(sarif(Outcome("apply", name, name, 1, (found,)), "1.0", root))


# Markdown


def without_code(text: str) -> str:
    """Drop code spans as CommonMark reads them: a run of backticks up to the next run of the same length."""
    return re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", "", text)


@pytest.mark.parametrize("name", NAMES)
def test_no_name_leaves_its_code_span(name: str, root: Root) -> None:
    tables = (SummaryTable("One", ("a", "b"), ((name, name),)), SummaryTable("Two", ("a",), ((name,),), is_folded=True))
    found = Check(name, name, "failed", name, f"/x/{name[:50]}", 1)
    text = markdown(Outcome("apply", name, name, 1, (found,), tables), root)
    rest = without_code(text)
    assert not re.search(r"[@#<>*\[`]", re.sub(r"</?details>|</?summary>|^###", "", rest)), rest
    # The rows keep their number of cells.
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [3, 3, 3, 2, 2, 2]
    assert html.unescape(rest) == rest and len(text) < 10_000


def test_a_code_span_is_longer_than_any_run_within() -> None:
    assert code("a") == "`a`" and code("") == ""
    assert code("`") == "`` ` ``" and code("a``b`c") == "```a``b`c```"


def test_a_summary_begins_with_the_result(root: Root) -> None:
    table = SummaryTable("2 steps", ("step", "nodes"), (("fuse-gelu", "3 -> 2"),), is_folded=True)
    text = markdown(outcome(check("undone", path=str(root.folder / "r.yaml"), line=2), tables=(table,)), root)
    assert text.splitlines()[0] == "### ⚠️ surgery apply: `default on m.onnx`"
    assert "- ⚠️ `fuse-gelu` (`r.yaml:2`): `it broke`" in text
    assert "<details><summary>2 steps</summary>\n\n| step | nodes |\n| --- | ---: |\n| `fuse-gelu` | 3 -> 2 |" in text
    assert markdown(outcome(check("passed")), root).startswith("### ✅")
    assert markdown(outcome(exit_code=1), root).startswith("### ❌")


# What they share


def test_places_are_split() -> None:
    assert placed("a/r.yaml:7:5") == ("a/r.yaml", 7, 5)
    assert placed("a:b/r.yaml:7") == ("a:b/r.yaml", 7, 0)
    assert placed("r.yaml") == ("r.yaml", 0, 0) and placed("") == ("", 0, 0)


def test_names_are_numbered_from_the_second_on() -> None:
    assert unique(["a", "b", "a", "a"]) == ["a", "b", "a #2", "a #3"]


def test_an_error_becomes_an_outcome(tmp_path: Path, root: Root) -> None:
    mistakes = of_error("apply", RecipeError([Problem("r.yaml", 3, 5, "no such pass"), Problem("r.yaml", 4, 1, "x")]))
    assert [(one.path, one.line, one.column) for one in mistakes.checks] == [("r.yaml", 3, 5), ("r.yaml", 4, 1)]
    assert mistakes.exit_code == 2 and not mistakes.is_complete
    path = tmp_path / "m.onnx"
    path.write_bytes(b"x")
    broken = of_error("check", ModelFileError("is no model", where=str(path)))
    assert broken.checks[0].path == str(path) and broken.checks[0].level == "failed"
    internal = of_error("check", ValueError("a\nb"))
    assert internal.exit_code == 3 and internal.checks[0].level == "broken"
    run = valid(sarif(internal, "1.0", root))
    assert run["results"] == [] and run["invocations"][0]["toolExecutionNotifications"][0]["level"] == "error"
    assert not run["invocations"][0]["executionSuccessful"]
