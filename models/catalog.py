"""The zoo: every architecture by name."""

from __future__ import annotations

from . import audio, text, vision
from .spec import Spec

_SPECS = (
    Spec(
        "bert",
        "BERT-base encoder, attention written out",
        text.bert,
        "bert-base",
        "bert-tiny",
        committed={"dy": "bert-tiny.dy.onnx", "ts": "bert-tiny.ts.onnx"},
    ),
    Spec(
        "bert-dropout",
        "BERT-base encoder exported in training mode, Dropout in its inference form",
        text.bert_dropout,
        "bert-base-dropout",
        "bert-dropout-tiny",
        committed={"dy": "bert-tiny.onnx", "ts": "bert-dropout-tiny.onnx"},
        opsets={"dy": 18, "ts": 11},  # the last opset whose Dropout cannot train
        training=True,
        metadata=True,
    ),
    Spec(
        "gpt2",
        "GPT-2 with its tied language head",
        text.gpt2,
        "gpt2",
        "gpt2-tiny",
        committed={"dy": "gpt2-tiny.onnx"},
    ),
    Spec(
        "llama",
        "Llama decoder of 8 layers, grouped-query attention, language head",
        text.llama,
        "llama",
        "llama-tiny",
        committed={"dy": "llama-tiny.dy.onnx", "ts": "llama-tiny.onnx"},
    ),
    Spec(
        "t5-enc",
        "T5-small encoder",
        text.t5_encoder,
        "t5-enc",
        "t5-enc-tiny",
        committed={"ts": "t5-enc-tiny.onnx"},
    ),
    Spec(
        "vit",
        "ViT-base/16 without a head",
        vision.vit,
        "vit",
        "vit-tiny",
        committed={"ts": "vit-tiny.onnx"},
    ),
    Spec(
        "resnet50",
        "ResNet-50 classifier, free image size",
        vision.resnet50,
        "resnet50",
        "resnet-tiny",
        committed={"ts": "resnet-tiny.onnx"},
    ),
    Spec(
        "mobilenet",
        "MobileNetV2 classifier",
        vision.mobilenet,
        "mobilenet",
        "mobilenet-tiny",
        committed={"dy": "mobilenet-tiny.onnx"},
    ),
    Spec(
        "convnext",
        "ConvNeXt-T classifier, free image size",
        vision.convnext,
        "convnext",
        "convnext-tiny",
        committed={"ts": "convnext-tiny.onnx"},
    ),
    Spec(
        "segformer",
        "SegFormer-B0 with its segmentation head",
        vision.segformer,
        "segformer",
        "segformer-tiny",
    ),
    Spec(
        "swin",
        "Swin-T classifier",
        vision.swin,
        "swin",
        "swin-tiny",
        opsets={"dy": 18, "ts": 20},
    ),
    Spec(
        "yolos",
        "YOLOS detector of 6 layers",
        vision.yolos,
        "yolos",
        "yolos-tiny",
    ),
    Spec(
        "whisper-enc",
        "Whisper-tiny encoder",
        audio.whisper_encoder,
        "whisper-enc",
        "whisper-enc-tiny",
        committed={"dy": "whisper-enc-tiny.onnx"},
    ),
)

ALL: dict[str, Spec] = {spec.name: spec for spec in _SPECS}
