"""The harness for case files: tests of passes in ONNX text, without any Python.

A case is a file `<folder>/<pass>/<situation>.onnxtxt`. It holds a graph (or a model, when it begins with `<`), and
comments in front of it say what the pass must do:

    # options: {target: onnxruntime}    options of the pass, as in a recipe
    # refused: c is used outside the pattern    the pass declines for this reason (may be repeated)
    # unchanged: why                    the pass does not even look
    # error: there is no tensor 'x'    what is asked for cannot be done, and the step fails with this message
    # repeats: why                      a second run changes the model again, as one does that inserts something
    # unverified: ONNX Runtime has no kernel for Dropout(1)    what keeps parity from being tried
    # declared: yes    the order of the nodes and what is declared of intermediate values are compared too

A line `# after` begins the expected result. For each case the harness asserts that the graph is valid, that the
result equals the expected one up to the names of interior values, that inputs and outputs are as before, that
ONNX Runtime computes the same, and that a second run changes nothing. A pass that is not one of surgery's own runs in
a separate process: what crashes or hangs is a finding.

`surgery test` runs the case files of a project. These lines do the same in a project's own pytest:

    import pytest
    from surgery import testing

    @pytest.mark.parametrize("case", testing.cases("tests/cases"), ids=str)
    def test_case(case):
        testing.check(case)

The passes are those of the installed packages; `catalog.load_plugin("acme.py")`, with `catalog` of
`surgery.registry.catalog`, adds those of a file.
"""

from __future__ import annotations

from surgery.testing.case import SUFFIX, Case, CaseError, cases, read_case
from surgery.testing.harness import Example, Finding, Outcome, bless, check, example, findings, run
from surgery.testing.project import HOMES, Project, Report, Result, find_project, run_cases
from surgery.testing.reasons import reason_texts, reasons_in, unshown, without_firing

__all__ = [
    "HOMES",
    "SUFFIX",
    "Case",
    "CaseError",
    "Example",
    "Finding",
    "Outcome",
    "Project",
    "Report",
    "Result",
    "bless",
    "cases",
    "check",
    "example",
    "find_project",
    "findings",
    "read_case",
    "reason_texts",
    "reasons_in",
    "run",
    "run_cases",
    "unshown",
    "without_firing",
]
