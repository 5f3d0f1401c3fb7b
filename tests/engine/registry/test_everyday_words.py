"""Words of everyday use, which lead to passes."""

from __future__ import annotations

import json

import pytest
from support.breadth import sampled

from surgery.base.errors import UsageError
from surgery.engine.registry.catalog import catalog
from surgery.engine.registry.everyday_words import EVERYDAY, passes_for
from surgery.interface import commands as cli

# Written down as they came to mind, without a look at the table.
ASKED = [
    *(
        "fp16",
        "half",
        "bf16",
        "float16",
        "int8",
        "int4",
        "quantize",
        "quant",
        "ptq",
        "qdq",
        "QOperator",
        "prune",
        "sparsity",
    ),
    *("nms", "argmax", "topk", "softmax", "resize", "normalize", "uint8", "NHWC", "layout", "transpose", "reshape"),
    *("cse", "dce", "dead code", "dedup", "constant-folding", "fold", "freeze", "simplify", "shape_inference"),
    *("flash", "flash-attention", "sdpa", "kv-cache", "KV cache", "gqa", "rope", "rmsnorm", "layernorm", "batchnorm"),
    *("relu6", "silu", "gelu", "moe", "lora", "batch-size", "dynamic shape", "opset", "rename", "merge", "extract"),
    *("subgraph", "debug", "dropout", "einsum", "unroll", "metadata"),
    *("privacy", "stack trace", "doc strings", "producer", "strip", "anonymize", "file paths", "scrub"),
]


def test_every_pass_of_the_table_exists() -> None:
    assert {name for names in EVERYDAY.values() for name in names} <= set(catalog.passes())


@pytest.mark.parametrize("word", sampled(ASKED, 4))
def test_a_word_finds_a_pass(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["passes", word, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = {one["name"] for one in found.get("passes", [found])}
    assert names
    assert set(passes_for(word)) <= names


def test_words_are_written_in_one_way() -> None:
    assert passes_for("KV cache") == passes_for("kv-cache") == passes_for("kv_cache") == EVERYDAY["kvcache"]
    assert all(passes_for(word) for word in EVERYDAY)
    assert passes_for("nothing of the kind") == ()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("freeze-weights", "initializers-from-inputs"),
        ("uint8-input", "embed-preprocessing"),
        ("reorder-outputs", "reorder"),
    ],
)
def test_a_task_in_place_of_a_pass_is_known_to_run_and_answered_in_recipes(name: str, meant: str) -> None:
    assert catalog.meant(name).name == meant
    with pytest.raises(UsageError, match=f"^no pass '{name}'; did you mean '{meant}'\\?$"):
        catalog.find(name)
