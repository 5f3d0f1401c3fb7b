"""The heads and the width of attention in models of the zoo, by prefix of the file name.

They are passed to ONNX Runtime's optimizer, as its documentation recommends.
"""

from __future__ import annotations

from pathlib import Path

HEADS = {
    "bert-base": (12, 768),
    "gpt2": (12, 768),
    "llama": (16, 1024),
    "t5-enc": (8, 512),
    "vit": (12, 768),
    "swin": (3, 96),
    "segformer": (1, 32),
    "yolos": (6, 384),
    "whisper-enc": (6, 384),
    "whisper-dec": (6, 384),
    "t5-dec": (6, 384),
    "bart": (8, 512),
    "distilbert": (6, 384),
    "roberta": (6, 384),
    "electra": (6, 384),
    "albert": (6, 384),
    "mpnet": (6, 384),
    "deberta": (6, 384),
    "modernbert": (6, 384),
    "clip": (6, 384),
    "siglip": (6, 384),
    "dinov2": (6, 384),
    "beit": (6, 384),
    "sam.": (6, 384),
    "sam2": (1, 48),
    "swin2": (3, 48),
    "detr": (4, 256),
    "conformer": (4, 256),
    "wavlm": (4, 256),
    "unet": (4, 128),
    "vae": (1, 256),
    "mmdit": (4, 256),
}
_CACHED = (8, 512)
"""Heads and width of the decoders with a cache, except bart, t5 and whisper."""

SMALL = {
    "bert": (12, 24),
    "gpt2-tiny": (12, 24),
    "vit": (12, 24),
    "llama-tiny": (6, 24),
    "t5-enc": (8, 24),
    "swin": (3, 24),
    "swin2": (3, 12),
    "sam2": (1, 12),
    "segformer": (1, 8),
    "detr": (4, 24),
    "conformer": (4, 24),
    "wavlm": (4, 24),
    "unet": (4, 16),
    "vae": (1, 32),
    "mmdit": (4, 32),
    "bloom": (6, 48),
    "mpt": (8, 48),
    **dict.fromkeys(("gemma", "gpt-neox", "gptj", "falcon", "llama-past", "mi", "phi", "qwen"), (8, 64)),
}
"""The same for small models, whose names end in `-tiny`; models not listed have six heads of four elements."""


def of(path: Path) -> tuple[int, int]:
    """Return heads and width by the longest matching prefix; zeros, so that the optimizer guesses, for other files."""
    name = path.name
    if "-tiny." in name:
        fitting = [stem for stem in SMALL if name.startswith(stem)]
        return SMALL[max(fitting, key=len)] if fitting else (6, 24)
    if "-past" in name and not name.startswith(("bart", "t5", "whisper")):
        return _CACHED
    fitting = [stem for stem in HEADS if name.startswith(stem)]
    return HEADS[max(fitting, key=len)] if fitting else (0, 0)
