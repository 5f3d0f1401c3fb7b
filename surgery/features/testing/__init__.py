"""The harness for case files: tests of passes in ONNX text, without Python code.

A case is a file `<folder>/<pass>/<situation>.onnxtxt`. It contains a graph (or a model, if it begins with `<`),
preceded by comments that specify the expected behaviour of the pass:

    # options: {target: onnxruntime}    options of the pass, as in a recipe
    # refused: c is used outside the pattern    the pass refuses for this reason (may be repeated)
    # unchanged: why                    the pass changes nothing, and gives no reason
    # error: there is no tensor 'x'    the requested edit is impossible, and the step fails with this message
    # repeats: why                      a second run changes the model again, for example because the pass inserts nodes
    # unverified: ONNX Runtime has no kernel for Dropout(1)    the reason why parity cannot be verified
    # declared: yes    the order of the nodes and the declarations of intermediate values are compared too

A line `# after` begins the expected result. For each case, the harness asserts that the graph is valid, that the result
equals the expected one up to the names of interior values, that inputs and outputs are unchanged, that ONNX Runtime
computes the same, and that a second run changes nothing. A pass that is not part of surgery runs in a separate process:
a crash or a hang is a finding.

`surgery test` runs the case files of a project. These lines do the same in the pytest suite of a project:

    import pytest
    from surgery.features import testing

    @pytest.mark.parametrize("case", testing.cases("tests/cases"), ids=str)
    def test_case(case):
        testing.check(case)

The passes of installed packages are known; `catalog.load_plugin("acme.py")`, with `catalog` from
`surgery.engine.registry.catalog`, adds those of a file.
"""

from __future__ import annotations

from surgery.features.testing.case import SUFFIX, Case, CaseError, cases, read_case
from surgery.features.testing.harness import CaseOutcome, CaseProblem, Example, bless, check, example, findings, run
from surgery.features.testing.project import HOMES, CaseResult, Project, Report, find_project, run_cases
from surgery.features.testing.reasons import reason_texts, reasons_in, unshown, without_firing

__all__ = [
    "HOMES",
    "SUFFIX",
    "Case",
    "CaseError",
    "CaseOutcome",
    "CaseProblem",
    "CaseResult",
    "Example",
    "Project",
    "Report",
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
