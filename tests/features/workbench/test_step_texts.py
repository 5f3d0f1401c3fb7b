"""Recipes as the texts of their steps."""

import pytest

from surgery.base.errors import UsageError
from surgery.engine.recipe.from_python import read
from surgery.features.workbench.step_texts import StepText, split, step_texts

WHOLE = """# About.
recipe: mine  # a name
steps:
  # first
  - drop-dropout

  - set-dims:
      dims: {batch: 1}
  # the last
  # of all
  - pass: rename
    with:
      nodes:
        - a: b
verify: {mode: each}
# end
"""


def test_steps_keep_their_comments_and_the_rest_stays() -> None:
    found = split(WHOLE)
    assert [step.text for step in found.steps] == [
        "# first\n- drop-dropout",
        "- set-dims:\n    dims: {batch: 1}",
        "# the last\n# of all\n- pass: rename\n  with:\n    nodes:\n      - a: b",
    ]
    assert found.above == "# About.\nrecipe: mine  # a name" and found.below == "verify: {mode: each}\n# end"
    assert found.whole() == WHOLE.replace("\n\n", "\n")


@pytest.mark.parametrize(
    "text",
    [
        "steps: [drop-dropout, {set-dims: {dims: {batch: 1}}}]",
        "steps:\n- drop-dropout\n- set-dims: {dims: {batch: 1}}",
        "steps:\n-   drop-dropout\n-   set-dims:\n        dims:\n            batch: 1\n",
        "steps:\n  -\n    drop-dropout\n  - set-dims: {dims: {batch: 1}}\n",
        "{steps: [drop-dropout, {set-dims: {dims: {batch: 1}}}]}",
        "steps:\r\n  - drop-dropout\r\n  - set-dims: {dims: {batch: 1}}\r\n",
        "steps:\n  - &a drop-dropout\n  - set-dims: {dims: {batch: 1}}\n",
    ],
)
def test_every_form_of_the_list_gives_the_same_steps(text: str) -> None:
    found = split(text)
    assert len(found.steps) == 2
    steps = [(step.name, dict(step.options)) for step in read(found.whole(), trust=False).steps]  # type: ignore[union-attr]
    assert steps == [("drop-dropout", {}), ("set-dims", {"dims": {"batch": 1}})]
    alone = read(found.whole(found.steps[1:]), trust=False).steps
    assert [step.name for step in alone] == ["set-dims"]  # type: ignore[union-attr]


def test_aliases_are_written_out_because_a_step_may_go() -> None:
    text = "steps:\n  - pass: rename\n    with: &names\n      nodes: {a: b}\n  - pass: rename\n    with: *names\n"
    found = split(text)
    assert [step.text for step in found.steps] == [
        "- pass: rename\n  with: {nodes: {a: b}}".replace("- pass: rename\n  with", "- pass: rename\n  with")
    ] * 2


def test_a_step_that_is_off_is_a_comment() -> None:
    found = split("steps:\n  - drop-dropout\n  - rename:\n      nodes: {a: b}\n")
    off = found.whole([found.steps[0], StepText(found.steps[1].text, on=False)])
    assert off == "steps:\n  - drop-dropout\n  # switched off:\n  # - rename:\n  #     nodes: {a: b}\n"
    assert len(read(off, trust=False).steps) == 1


def test_a_step_is_a_name_a_mapping_or_text() -> None:
    assert step_texts("drop-dropout") == [StepText("- drop-dropout")]
    assert step_texts({"set-dims": {"dims": {"b": 1}}}) == [StepText("- set-dims: {dims: {b: 1}}")]
    assert step_texts("set-dims:\n  dims: {b: 1}") == [StepText("- set-dims:\n    dims: {b: 1}")]
    assert step_texts("  - drop-dropout\n  - drop-identity") == [
        StepText("- drop-dropout"),
        StepText("- drop-identity"),
    ]
    assert step_texts("steps: [drop-dropout]") == [StepText("- drop-dropout")]
    for wrong in ("", "  ", None, 3):
        with pytest.raises(UsageError, match="a step is the name of a pass"):
            step_texts(wrong)
