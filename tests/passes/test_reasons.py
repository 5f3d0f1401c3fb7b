"""The reasons for refusals, read from the source of a pass and of its helpers."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

from surgery import Parity
from surgery.engine.registry.passes import Pass
from surgery.features.testing import reason_texts

HELPERS = '''"""Rules by operator."""

RULES = {
    "Relu": lambda new, node: new.require(node.is_used, "nothing reads the result"),
    "Exp": lambda new, node: new.require(
        node.is_known, f"the type of {node} is not known"
    ),
}
'''
PASS = '''"""A pass."""

from ._rules import RULES


def trim(graph):
    """Trim nodes."""
    for node in graph.nodes():
        with graph.site(node) as new:
            new.require(node.op in RULES, "there is no rule for the operator")
            RULES[node.op](new, node)
'''


def test_the_reasons_of_lambdas_in_a_dict_of_rules_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "trimming"
    folder.mkdir()
    for name, source in (("__init__", ""), ("_rules", HELPERS), ("trim", PASS)):
        (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        declared = Pass("trim", Parity.EXACT, "graph", import_module("trimming.trim").trim)
        expected = ["nothing reads the result", "the type of … is not known", "there is no rule for the operator"]
        assert sorted(reason_texts(declared)) == expected
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "trimming"]:
            del sys.modules[name]
