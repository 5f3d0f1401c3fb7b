"""Objects of onnx-ir and onnxscript as passes."""

from pathlib import Path

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as common
import pytest
from support import ROOT
from support.breadth import sampled

from surgery import Parity, add_pass
from surgery.base.errors import UsageError
from surgery.engine import recipe
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.run_options import RunOptions
from surgery.engine.registry.catalog import catalog
from surgery.engine.why.explain import explain
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.proto import lineage

rewriter = pytest.importorskip("onnxscript.rewriter")

MODELS = ROOT / "models"


class DropIdentity(rewriter.RewriteRuleClassBase):
    """Remove an Identity before an Abs.

    Example:
        this is no ONNX text
    """

    def pattern(self, op, x):
        return op.Abs(op.Identity(x, _outputs=["copy"]))

    def check(self, context, x, copy):
        result = rewriter.MatchResult()
        if copy.producer().doc_string:
            result.fail("the Identity is documented")
        return result

    def rewrite(self, op, x, copy):
        return op.Abs(x)


def neg_neg(op, x):
    return op.Neg(op.Neg(x))


def identity(op, x):
    return op.Identity(x)


def exp(op, x):
    return op.Exp(x)


def wrong(op, x):
    return op.Sinh(x)


def add_weight(op, x, w):
    return op.Add(x, w)


def sub_negated(op, x, w):
    return op.Sub(x, op.initializer(ir.tensor(-w.const_value.numpy()), name="w"))


class Functional(ir.passes.FunctionalPass):
    """Return a copy without doc strings."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        made = model.clone()
        made.doc_string = None
        return ir.passes.PassResult(made, True)


class Liar(ir.passes.InPlacePass):
    def call(self, model: ir.Model) -> ir.passes.PassResult:
        return ir.passes.PassResult(model.clone(), True)


NEG = rewriter.RewriteRule(neg_neg, identity, name="NegNeg")
add_pass("object-cse", common.CommonSubexpressionEliminationPass(), parity=Parity.EXACT)
add_pass("object-functional", Functional(), parity=Parity.EXACT)
add_pass("object-liar", Liar())
add_pass("object-class", DropIdentity, parity=Parity.EXACT)
add_pass("object-instance", DropIdentity(name="Other"), parity=Parity.EXACT)
add_pass("object-rule", NEG)
add_pass("object-set", rewriter.RewriteRuleSet([NEG, DropIdentity.rule()]))
add_pass("object-list", [NEG, DropIdentity])
add_pass("object-wrong", rewriter.RewriteRule(exp, wrong, lambda context, x: x.name != "d"))
add_pass("object-same-name", rewriter.RewriteRule(add_weight, sub_negated))
add_pass("object-all", list(rewriter._DEFAULT_REWRITE_RULES))


def run(model: onnx.ModelProto | Path, steps: str, **options: bool) -> runner.Result:
    return runner.apply(
        model, recipe.parse(f"recipe: objects\nsteps: [{steps}]", "objects.yaml"), options=RunOptions(**options)
    )


COPIES = """g (float[n] x) => (float[n] y) {
    [first] a = Identity(x)
    [one] b = Abs(a)
    [two] c = Identity(b)
    [three] d = Neg(c)
    [four] y = Neg(d)
}"""


@pytest.mark.parametrize("contained", sampled([True, False], 2))
def test_passes_of_onnx_ir(contained: bool) -> None:
    model = text.parse("g (float[n] x) => (float[n] y) { a = Exp(x) b = Exp(x) y = Add(a, b) }")
    model.doc_string = "to go"
    result = run(model, "object-cse, object-functional", contained=contained)
    assert [(step.status, step.sites) for step in result.steps] == [("committed", 1), ("committed", 1)]
    assert result.output.ops == {"Exp": 1, "Add": 1} and result.proto.doc_string == ""


def test_a_pass_that_breaks_its_declaration_fails() -> None:
    (step,) = run(text.parse(COPIES), "object-liar").steps
    assert step.status == "failed" and "declared in-place" in step.message


RULES = {"class": (1, 4), "instance": (1, 4), "rule": (1, 4), "set": (2, 3), "list": (2, 3)}


@pytest.mark.parametrize("kind", RULES)
def test_rules_in_every_form(kind: str) -> None:
    sites, nodes = RULES[kind]
    result = run(text.parse(COPIES), f"object-{kind}")
    (step,) = result.steps
    assert (step.status, step.sites, step.nodes_after) == ("committed", sites, nodes), step.message


def test_a_rule_records_the_lineage_of_new_nodes() -> None:
    result = run(text.parse(COPIES), "object-class")
    (node,) = (node for node in result.proto.graph.node if node.op_type == "Abs")
    known = lineage.read({entry.key: entry.value for entry in node.metadata_props})
    assert known is not None and known.passes == ("object-class",)
    assert set(known.origins) == {"first", "one"}


def test_the_reason_of_a_failed_check_is_a_refusal() -> None:
    model = text.parse(COPIES)
    model.graph.node[0].doc_string = "keep me"
    (step,) = run(model, "object-class").steps
    assert step.status == "unchanged"
    assert [(r.anchor, r.reason) for r in step.refusals] == [("one", "DropIdentity: the Identity is documented")]


def test_why_lists_the_reasons_of_failed_checks() -> None:
    stored = storage.from_proto(text.parse(COPIES))
    stored.proto.graph.node[0].doc_string = "keep me"
    for at in (None, "one", "three"):
        why = explain(catalog.find("object-class"), stored.proto, stored.weights, {}, at=at)
        found = [(one.reason, [place.anchor for place in one.places]) for one in why.refusals]
        assert found == ([] if at == "three" else [("DropIdentity: the Identity is documented", ["one"])])


@pytest.mark.parametrize("contained", sampled([True, False], 2))
def test_sites_that_are_wrong_are_left_out(contained: bool) -> None:
    model = text.parse("g (float[4] x) => (float[4] y, float[4] z) { a = Abs(x) y = Exp(a) b = Abs(y) z = Neg(b) }")
    result = run(model, "{pass: object-wrong, on_failure: bisect}, object-rule", contained=contained)
    (step, _) = result.steps
    assert (step.status, [site.number for site in step.refused_sites]) == ("rolled_back", [1])
    assert result.proto is result.stored.proto


def test_a_new_initializer_gets_an_unused_name() -> None:
    model = text.parse(
        "g (float[2] x) => (float[2] y, float[2] z) <float[2] w = {1, 2}> { y = Add(x, w) z = Mul(x, w) }"
    )
    result = run(model, "object-same-name")
    (step,) = result.steps
    assert (step.status, step.sites) == ("committed", 1), step.message
    assert len(result.proto.graph.initializer) == 2


def test_a_rule_without_a_match_changes_nothing() -> None:
    model = text.parse(
        "g (float[2] x) => (float[2] y) { c = Constant<value_float: float = 2.0>() dead = Exp(x) y = Add(x, c) }"
    )
    result = run(model, "object-rule")
    assert [(step.status, step.sites) for step in result.steps] == [("unchanged", 0)]


@pytest.mark.parametrize("name", sampled(["resnet-tiny", "whisper-enc-tiny", "bert-tiny.ts"], 3))
def test_all_default_rules_on_real_models(name: str, short_models: Path) -> None:
    (step,) = run(short_models / f"{name}.onnx", "object-all").steps
    assert step.status == "committed" and step.verdict.status in ("equal", "close"), step.message


def test_a_pass_is_described_by_its_object() -> None:
    found = catalog.find("object-class")
    assert found.doc == "Remove an Identity before an Abs." and found.example is None
    assert found.place.startswith(__file__) and found.module == __name__
    assert found.options == () and catalog.find("object-functional").summary == "Return a copy without doc strings."
    assert catalog.find("object-list").summary == "Apply rewrite rules of onnxscript: NegNeg, DropIdentity."
    assert catalog.find("object-rule").summary == "Apply NegNeg of onnxscript."
    assert catalog.find("object-liar").summary.startswith("Apply Liar of ")


WRONG = [
    (3, "an object of the type int is not a pass"),
    ([], "an empty list is not a pass"),
    ([NEG, "rule"], "an object of the type str is not a pass"),
    (Functional, "the class Functional is not a pass"),
    (rewriter.RewriteRule, "the class RewriteRule is not a pass"),
    (None, "an object of the type NoneType is not a pass"),
]


@pytest.mark.parametrize(("thing", "message"), WRONG)
def test_other_objects_are_refused(thing: object, message: str) -> None:
    with pytest.raises(UsageError, match=r"give an onnx_ir\.passes\.PassBase") as caught:
        add_pass("object-nothing", thing)
    assert caught.value.what == message


def test_a_duplicate_name_is_an_error_that_names_both_places() -> None:
    with pytest.raises(UsageError, match="two passes are called 'object-rule'") as caught:
        add_pass("object-rule", NEG)
    assert str(caught.value).count("test_objects.py") == 2
