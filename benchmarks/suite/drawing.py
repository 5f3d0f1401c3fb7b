"""Realistic synthetic data: lines and pages of text, scenes, documents, tones, voices and noise."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

Array = np.ndarray[Any, Any]
Random = np.random.Generator
RATE = 16000
_TEXT = """
the quick brown fox jumps over lazy dog invoice total amount due date order number customer street city phone shipping
weight price tax subtotal model network precision budget layer image sound report chapter section page
"""
_WORDS = _TEXT.split()


def words(random: Random, count: int) -> str:
    """Return `count` random words and numbers."""
    picked = [
        str(random.choice(_WORDS)) if random.random() < 0.75 else str(random.integers(10, 9999)) for _ in range(count)
    ]
    return " ".join(one.capitalize() if random.random() < 0.3 else one for one in picked)


def _font(size: float) -> Any:
    return ImageFont.load_default(max(8, round(size)))


def _shot(image: Image.Image, random: Random, noise: float = 6.0) -> Array:
    """Return an image as from a camera: blurred, with a light gradient and noise; [height, width, 3] in 0 to 255."""
    image = image.filter(ImageFilter.GaussianBlur(random.uniform(0.0, 0.7)))
    array = np.asarray(image, np.float32)
    light = np.linspace(random.uniform(0.85, 1.0), random.uniform(0.85, 1.0), array.shape[1])[None, :, None]
    return np.clip(array * light + random.normal(0, noise, array.shape), 0, 255).round().astype(np.float32)


def line(text: str, size: tuple[int, int], random: Random) -> Array:
    """Draw a line of text that fills the height and at most the width; [height, width, 3] in 0 to 255."""
    height, width = size
    paper, ink = random.uniform(190, 255, 3), random.uniform(0, 90, 3)
    scale = height * random.uniform(0.6, 0.75)
    while _font(scale).getlength(text) > width - 10:
        scale *= 0.95
    image = Image.new("RGB", (width, height), tuple(map(int, paper)))
    place = (random.uniform(3, 8), height / 2 + random.uniform(-2, 2))
    ImageDraw.Draw(image).text(place, text, font=_font(scale), fill=tuple(map(int, ink)), anchor="lm")
    turned = image.rotate(random.uniform(-1.0, 1.0), Image.Resampling.BILINEAR, fillcolor=tuple(map(int, paper)))
    return _shot(turned, random)


def page(side: tuple[int, int], random: Random) -> tuple[Array, Array]:
    """Draw lines of text of several sizes; return the image [height, width, 3] and the mask of the lines."""
    height, width = side
    paper = tuple(int(one) for one in random.uniform(200, 255, 3))
    image, mask = Image.new("RGB", (width, height), paper), Image.new("1", (width, height))
    pen, marker = ImageDraw.Draw(image), ImageDraw.Draw(mask)
    top = random.uniform(8, 24)
    while top < height - 40:
        size = random.choice([14, 18, 24, 30])
        text = words(random, int(random.integers(1, 5)))
        left = random.uniform(6, width / 4)
        pen.text((left, top), text, font=_font(size), fill=tuple(int(one) for one in random.uniform(0, 110, 3)))
        box = pen.textbbox((left, top), text, font=_font(size))
        marker.rectangle((box[0], box[1], min(box[2], width - 1), box[3]), fill=1)
        top = box[3] + random.uniform(0.4, 1.4) * size
    return _shot(image, random), np.asarray(mask, bool)


def document(side: int, random: Random) -> tuple[Array, Array]:
    """Draw an identity card with a photo, fields, and two machine-readable lines; return it and a mask of the lines."""
    image = Image.new("RGB", (side, side), tuple(int(one) for one in random.uniform(40, 130, 3)))
    pen, mask = ImageDraw.Draw(image), np.zeros((side, side), bool)
    left, top = random.uniform(8, 24, 2)
    right, bottom = side - random.uniform(8, 24), side - random.uniform(20, 50)
    pen.rectangle((left, top, right, bottom), fill=tuple(int(one) for one in random.uniform(190, 245, 3)))
    pen.ellipse((left + 15, top + 25, left + 65, top + 90), fill=(170, 140, 120))
    for number in range(5):
        pen.text((left + 80, top + 20 + 18 * number), words(random, 2), font=_font(11), fill=(40, 40, 60))
    wide = right - left - 12
    for number in range(2):
        text = "".join(random.choice(list("ABCDEFGHIKLMNOPRST0123456789<<<<<<<<"), 40))
        size = 12.0
        while _font(size).getlength(text) > wide:
            text = text[:-1]
        at = bottom - 32 + 15 * number
        pen.text((left + 6, at), text, font=_font(size), fill=(20, 20, 20))
        mask[int(at) : int(at) + 13, int(left + 6) : int(left + 6 + _font(size).getlength(text))] = True
    return _shot(image, random), mask


def scene(side: tuple[int, int], random: Random, glyphs: int = 0) -> tuple[Array, Array]:
    """Draw a scene of hills, blots and shapes with glyphs on top; return it and the boxes of the glyphs."""
    height, width = side
    low = random.uniform(0, 255, (6, 8, 3)).astype(np.uint8)
    image = Image.fromarray(low).resize((width, height), Image.Resampling.BICUBIC)
    pen, boxes = ImageDraw.Draw(image), []
    for _ in range(int(random.integers(3, 8))):
        x, y, r = random.uniform(0, width), random.uniform(0, height), random.uniform(0.03, 0.2) * width
        color = tuple(int(one) for one in random.uniform(0, 255, 3))
        draw = pen.ellipse if random.random() < 0.6 else pen.rectangle
        draw((x - r, y - r * random.uniform(0.4, 1), x + r, y + r), fill=color)
    for number in range(glyphs):
        size = random.uniform(0.1, 0.17) * width
        x = (number + random.uniform(0.15, 0.6)) * width / max(1, glyphs)
        y = random.uniform(0.1, 0.75) * height
        text = str(random.choice(list("ABCDEFGHKMNPQRSTUVWXYZ2345679")))
        pen.text(
            (x, y), text, font=_font(size), fill=tuple(int(one) for one in random.uniform(0, 255, 3)), stroke_width=2
        )
        boxes.append(pen.textbbox((x, y), text, font=_font(size), stroke_width=2))
    return _shot(image, random), np.array(boxes, np.float64).reshape(-1, 4)


def slider(side: int, random: Random) -> Array:
    """Draw a captcha: a scene with a dark gap in the shape of a puzzle piece, and the piece at the left."""
    array, _ = scene((side * 5 // 8, side), random)
    image = Image.new("RGB", (side, side), (114, 114, 114))
    picture = Image.fromarray(array.astype(np.uint8))
    size, top = side * random.uniform(0.11, 0.15), random.uniform(0.1, 0.35) * side
    gap = random.uniform(0.35, 0.8) * side
    shape, dark = Image.new("L", picture.size), Image.new("L", picture.size)
    for target, left, light in ((shape, 8.0, 255), (dark, gap, 150)):
        pen = ImageDraw.Draw(target)
        pen.rectangle((left, top, left + size, top + size), fill=light)
        knob = size / 5
        pen.ellipse((left + size - knob, top + size / 2 - knob, left + size + knob, top + size / 2 + knob), fill=light)
        pen.ellipse((left + size / 2 - knob, top - knob, left + size / 2 + knob, top + knob), fill=light)
    piece = picture.transform(picture.size, Image.Transform.AFFINE, (1, 0, gap - 8, 0, 1, 0))
    result = Image.composite(Image.new("RGB", picture.size, (20, 20, 20)), picture, dark)
    result.paste(piece, (0, 0), shape)
    image.paste(result, (0, side * 3 // 16))
    return _shot(image, random, 2.0)


# Sound


def tone(pitch: float, seconds: float, random: Random, rate: int = RATE) -> Array:
    """Return a note with fading harmonics."""
    time = np.arange(round(seconds * rate)) / rate
    parts = [np.sin(2 * np.pi * pitch * k * time + random.uniform(0, 6)) / k**1.3 for k in range(1, 8)]
    return np.asarray(0.2 * np.sum(parts, axis=0) * np.exp(-time * random.uniform(0.3, 1.5)), np.float32)


def voice(seconds: float, random: Random, vowels: list[tuple[float, float, float]] | None = None) -> Array:
    """Return a speech-like sound: pulses of varying pitch through formants, in syllables with pauses."""
    count = round(seconds * RATE)
    time = np.arange(count) / RATE
    pitch = random.uniform(90, 220) * (1 + 0.12 * np.sin(2 * np.pi * random.uniform(0.5, 2) * time))
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    result = np.zeros(count)
    kinds = vowels or [(700, 1200, 2500), (300, 2300, 3000), (500, 900, 2400), (350, 700, 2300), (500, 1800, 2500)]
    at = 0
    while at < count:
        long = round(random.uniform(0.12, 0.28) * RATE)
        formants = kinds[int(random.integers(len(kinds)))]
        part = slice(at, min(at + long, count))
        gains = [
            sum(np.exp(-(((k * pitch[part].mean() - f) / 120) ** 2)) for f in formants) + 0.03 for k in range(1, 30)
        ]
        wave = sum(gain * np.sin(k * phase[part]) for k, gain in enumerate(gains, 1))
        result[part] = wave * np.sin(np.linspace(0, np.pi, len(phase[part]))) ** 0.5
        if random.random() < 0.3:
            result[part] += random.normal(0, 0.3, len(phase[part])) * np.linspace(1, 0, len(phase[part])) ** 8
        at += long + round(random.uniform(0.0, 0.25) * RATE)
    return np.asarray(0.3 * result / max(1e-9, np.abs(result).max()), np.float32)


def noise(count: int, level: float, random: Random) -> Array:
    """Return coloured noise."""
    spectrum = np.fft.rfft(random.normal(0, 1, count)) / np.maximum(1, np.arange(count // 2 + 1)) ** random.uniform(
        0, 0.6
    )
    wave = np.fft.irfft(spectrum, count)
    return np.asarray(level * wave / wave.std(), np.float32)


def log_mel(wave: Array, bands: int, hop: int = 160, window: int = 400) -> Array:
    """Return the log-mel spectrogram [frames, bands] of a 16 kHz sound."""
    frames = np.lib.stride_tricks.sliding_window_view(wave, window)[::hop] * np.hanning(window)
    power = np.abs(np.fft.rfft(frames, 512)) ** 2
    edges = 700 * (10 ** (np.linspace(0.0, 2595 * np.log10(1 + RATE / 2 / 700), bands + 2) / 2595) - 1)
    bins = np.fft.rfftfreq(512, 1 / RATE)
    rise = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    fall = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    return np.asarray(np.log(power @ np.clip(np.minimum(rise, fall), 0, None).T + 1e-6), np.float32)
