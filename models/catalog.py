"""The zoo: every architecture by name."""

from __future__ import annotations

from . import text
from .spec import Spec

ALL: dict[str, Spec] = {
    spec.name: spec
    for spec in (
        Spec("bert", "BERT-base encoder, attention written out", text.bert, "bert-base", "bert-tiny"),
        Spec(
            "bert-dropout",
            "BERT-base encoder exported in training mode, Dropout in its inference form",
            text.bert_dropout,
            "bert-base-dropout",
            "bert-dropout-tiny",
            opset_of={"ts": 11},
            training=True,
            bundled={"dy": "bert-tiny.onnx"},
        ),
        Spec("gpt2", "GPT-2 with tied language head", text.gpt2, "gpt2", "gpt2-tiny"),
        Spec("llama", "Llama decoder, grouped-query attention", text.llama, "llama", "llama-tiny"),
        Spec("t5-enc", "T5-base encoder", text.t5_encoder, "t5-enc", "t5-enc-tiny"),
    )
}
