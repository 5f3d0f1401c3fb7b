"""The run of the original against itself: when it takes place."""

import pytest

from surgery.model.graph import text
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.verdict.verifier import Verifier


def model(body: str) -> bytes:
    data: bytes = text.parse(f"g (float[N,S] x) => (float[N,S] y) {{ {body} }}").SerializeToString()
    return data


@pytest.mark.parametrize(("nodes", "beforehand"), [(2, True), (2000, False)])
def test_a_large_model_has_a_control_run_only_if_a_change_differs(
    monkeypatch: pytest.MonkeyPatch, nodes: int, beforehand: bool
) -> None:
    asked: list[ReferenceRun] = []
    control = ReferenceRun.control

    def told(self: ReferenceRun) -> bool:
        asked.append(self)
        return control(self)

    monkeypatch.setattr(ReferenceRun, "control", told)
    steps = " ".join(f"v{number + 1} = Neg(v{number})" for number in range(nodes))
    before = f"v0 = Relu(x) {steps} y = Exp(v{nodes})"

    def status(after: str) -> str:
        return Verifier(model(before)).verify(model(after)).status

    assert status(f"i = Identity(x) {before.replace('(x)', '(i)')}") == "equal"
    assert bool(asked) is beforehand
    assert status(before.replace("y = Exp", "y = Tanh")) == "different"
    assert asked
