"""The JSON schema of recipes: it accepts what the loader accepts and refuses what that refuses, as far as it can."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML
from support import ROOT

from surgery import Graph, graph_pass
from surgery.base.errors import RecipeError
from surgery.engine.recipe import parse, recipe_lookup
from surgery.engine.recipe.jsonschema import schema
from surgery.engine.registry.catalog import catalog
from surgery.interface import commands as cli


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return schema()


@pytest.fixture(scope="module")
def validator(made: dict[str, Any]) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(made)


def accepts(validator: jsonschema.Draft202012Validator, text: str) -> bool:
    return bool(validator.is_valid(YAML(typ="safe", pure=True).load(text)))


def loads(text: str) -> bool:
    try:
        parse(text, ROOT / "recipes" / "r.yaml")
    except RecipeError:
        return False
    return True


def test_the_schema_is_valid(made: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(made)
    json.dumps(made, allow_nan=False)


def test_every_reference_is_defined(made: dict[str, Any]) -> None:
    def references(body: Any) -> set[str]:
        if isinstance(body, list):
            return set().union(*map(references, body))
        if not isinstance(body, dict):
            return set()
        own = {body["$ref"]} if isinstance(body.get("$ref"), str) else set()
        return own.union(*map(references, body.values()))

    assert references(made) <= {f"#/$defs/{name}" for name in made["$defs"]}


@pytest.mark.parametrize("name", recipe_lookup.names())
def test_the_schema_accepts_the_shipped_recipes(name: str, validator: jsonschema.Draft202012Validator) -> None:
    data = YAML(typ="safe", pure=True).load((recipe_lookup.folder() / f"{name}.yaml").read_text())
    assert [error.message for error in validator.iter_errors(data)] == []


RULE = "rules: {own: {match: 'y = Neg(x)', emit: 'y = com.acme::Neg(x)', domains: {com.acme: 1}, parity: close}}\n"
RIGHT = [
    "steps: [drop-identity]",
    "recipe: r\nabout: |\n  Two\n  lines.\nmodel: m.onnx\noutput: '{stem}.x.onnx'\nsteps: [drop-identity]",
    "steps:\n  - drop-identity:\n  - fold-constants:\n  - fold-constants: {max_growth: 1MB, max_percent: 2}\n",
    "steps: [{pass: fold-constants, with: {max_growth: 4096}, on_failure: bisect}]",
    "steps: [{pass: drop-identity, when: {ops: {Neg: '>= 1'}, opset: 13}, expect: {sites: 0, signature: unchanged}}]",
    "steps: [{repeat: until-stable, steps: [drop-identity]}, {repeat: 2, steps: [drop-dead], when: {nodes: '> 2'}}]",
    "steps: [{use: tidy}, {use: {steps: [drop-dead], recipe: x, expect: {nodes: 2}}, when: {nodes: 2}}]",
    "steps: [upgrade-opset: {to: 24}]",
    "inputs: {dims: {n: 3, m: [1, 2]}, tensors: {x: {range: [0, 1.5]}, y: {values: [a, 1, true]}}}\nsteps: [drop-dead]",
    "verify: {rtol: 1e-4, atol: 0, seed: 3, mode: end, unverified: accept, timeout: 0.5, memory: 2GiB}\n"
    "steps: [drop-dead]",
    "accuracy: {budget: {all: cosine >= 0.99, y: [snr >= 30 dB]}, sets: 4}\nsteps: [drop-dead]",
    "expect: {ops: {Neg: '== 0'}, nodes: '<= 5', opset: '!= 3', signature: unchanged}\nsteps: [drop-dead]",
    "expect: {speed: '>= 1.2'}\nsteps: [drop-dead]",
    "expect: {speed: 0.95}\nsteps: [drop-dead]",
    "plugins: json\nsteps: [drop-dead]",
    f"{RULE}steps: [own, drop-dead, pass: own]",
    f"{RULE}steps: [own, {{repeat: 2, steps: [own]}}]",
    "steps: [{use: {rules: {own: {match: 'y = Neg(x)', emit: 'y = Abs(x)'}}, steps: [drop-dead, own]}}]",
]
WRONG = [
    "steps: []",
    "steps: drop-identity",
    "recipe: r",
    "recipe: 5\nsteps: [drop-dead]",
    "abuot: r\nsteps: [drop-dead]",
    "output: '{name}.onnx'\nsteps: [drop-dead]",
    "steps: [drop-identityy]",
    "steps: [drop-identity: {x: 1}]",
    "steps: [fold-constants: {max_growth: much}]",
    "steps: [fold-constants: {max_grwth: 1}]",
    "steps: [fold-constants: {keep_dequantize: 2}]",
    "steps: [{fold-constants: {}, drop-dead: {}}]",
    "steps: [{pass: fold-constants, with: {max_grwth: 1}}]",
    "steps: [{pass: drop-identity, with: {x: 1}}]",
    "steps: [{pass: drop-identityy}]",
    "steps: [{pass: drop-identity, on_failure: retry}]",
    "steps: [{pass: drop-identity, use: tidy}]",
    "steps: [{pass: drop-identity, expect: {sites: '~ 3'}}]",
    "steps: [{repeat: forever, steps: [drop-identity]}]",
    "steps: [{repeat: 0, steps: [drop-identity]}]",
    "steps: [{repeat: 2}]",
    "steps: [{repeat: 2, steps: [drop-identityy]}]",
    "steps: [{use: tidy, with: 3}]",
    "steps: [{use: {steps: [drop-identityy]}}]",
    "steps: [{use: {model: x.onnx, steps: [drop-identity]}}]",
    "steps: [3]",
    "inputs: {dims: {n: 0}}\nsteps: [drop-dead]",
    "inputs: {tensors: {x: {range: [1], values: [2]}}}\nsteps: [drop-dead]",
    "inputs: {tensors: {x: {file: x.txt}}}\nsteps: [drop-dead]",
    "inputs: {generator: make}\nsteps: [drop-dead]",
    "verify: {rtol: -1}\nsteps: [drop-dead]",
    "verify: {mode: sometimes}\nsteps: [drop-dead]",
    "verify: {memory: 2 parsecs}\nsteps: [drop-dead]",
    "verify: {timeout: 0}\nsteps: [drop-dead]",
    "accuracy: {budget: near}\nsteps: [drop-dead]",
    "accuracy: {sets: 3}\nsteps: [drop-dead]",
    "accuracy: {metric: {function: 'metric.py:score'}}\nsteps: [drop-dead]",
    "accuracy: {metric: {function: metric, drop: 1}}\nsteps: [drop-dead]",
    "accuracy: {metric: {function: 'metric.py:score', drop: some}}\nsteps: [drop-dead]",
    "expect: {sites: 3}\nsteps: [drop-dead]",
    "expect: {nodes: -1}\nsteps: [drop-dead]",
    "expect: {signature: same}\nsteps: [drop-dead]",
    "expect: {speed: '> 1'}\nsteps: [drop-dead]",
    "plugins: [a b]\nsteps: [drop-dead]",
    "rules: {own: {match: 'y = Neg(x)'}}\nsteps: [own]",
    "rules: {own: {match: 'y = Neg(x)', emit: 'y = com.acme::Neg(x)', parity: near}}\nsteps: [own]",
    "rules: {own: {match: 'y = Neg(x)', emit: 'y = com.acme::Neg(x)', domain: {com.acme: 1}}}\nsteps: [own]",
    f"{RULE}steps: [own, fold-constants: {{max_grwth: 1}}]",
    f"{RULE}steps: [own, {{pass: own, on_failure: retry}}]",
]


@pytest.mark.parametrize("text", RIGHT)
def test_schema_and_loader_accept_the_same(text: str, validator: jsonschema.Draft202012Validator) -> None:
    assert loads(text) and accepts(validator, text)


@pytest.mark.parametrize("text", WRONG)
def test_schema_and_loader_refuse_the_same(text: str, validator: jsonschema.Draft202012Validator) -> None:
    assert not loads(text) and not accepts(validator, text)


@pytest.mark.parametrize("more", ["drop: 0.5 %, better: lower", "drop: 0.01", "drop: 2e-1%"])
def test_a_user_metric_is_accepted(
    more: str, validator: jsonschema.Draft202012Validator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("metric.py").touch()
    text = f"accuracy: {{metric: {{function: 'metric.py:score', {more}}}, sets: 4}}\nsteps: [drop-dead]"
    assert accepts(validator, text)
    found = parse(text, trust=True).verify.accuracy
    assert found.limits == () and found.metric is not None and found.metric.lower == ("lower" in more)


def test_defaults_and_texts(made: dict[str, Any]) -> None:
    options = made["$defs"]["pass:fold-constants"]["properties"]
    assert options["max_growth"]["default"] == 2000000 and "bytes" in options["max_growth"]["description"]
    assert made["$defs"]["verify"]["properties"]["timeout"]["default"] == 300.0
    names = made["$defs"]["pass-name"]
    assert names["enumDescriptions"][names["enum"].index("drop-dead")] == catalog.find("drop-dead").summary
    undescribed = [
        f"{name}.{key}"
        for name in ("inputs", "tensor", "verify", "when", "expect", "expect-step", "rule", "nested", "repeat", "use")
        for key, body in made["$defs"][name]["properties"].items()
        if not body["description"].endswith(".")
    ]
    assert undescribed == []


def test_options_of_any_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_passes", {})
    monkeypatch.setattr(catalog, "_is_complete", True)

    @graph_pass("odd-options")
    def odd(
        graph: Graph,
        *,
        pairs: dict[str, list[int]],
        point: tuple[int, float] = (1, 0.5),
        where: Path = Path("x"),
        anything: object = None,
        limit: float = float("inf"),
    ) -> None:
        """Take what there is."""

    made = schema([catalog.find("odd-options")])
    jsonschema.Draft202012Validator.check_schema(made)
    validator = jsonschema.Draft202012Validator(made)
    assert validator.is_valid({"steps": [{"odd-options": {"pairs": {"a": [1]}, "point": [1, 2.0]}}]})
    assert not validator.is_valid({"steps": ["odd-options"]})
    assert not validator.is_valid({"steps": [{"pass": "odd-options"}]})
    assert not validator.is_valid({"steps": [{"odd-options": {"pairs": {"a": ["x"]}}}]})
    assert made["$defs"]["pass:odd-options"]["properties"]["where"]["default"] == "x"
    json.dumps(made, allow_nan=False)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    for _ in range(2):  # written anew without being asked
        assert cli.main(["schema", "-o", "s.json"]) == 0
    assert json.loads(Path("s.json").read_text()) == printed
    Path("other.json").write_text("{}")
    assert cli.main(["schema", "-o", "other.json"]) == 2
    assert Path("other.json").read_text() == "{}"
    assert "pass --force" in capsys.readouterr().err
    assert cli.main(["schema", "-o", "other.json", "--force"]) == 0
    assert cli.main(["schema", "-o", "no/such/folder.json"]) == 2
