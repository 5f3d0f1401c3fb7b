"""Builders of parts of diffusion models, as diffusers writes them: a small UNet, a VAE decoder, blocks of an MMDiT.

diffusers is no dependency; the modules below have the layers of its models, in their order.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - its usual name

from . import weights
from .spec import Built, Exporter, Size

SEED = 0
TEXT = {0: "batch", 1: "sequence"}
LATENT = 16


class Attention(nn.Module):
    """Attention to the tokens themselves or to others; the output has a bias, queries, keys and values need none."""

    def __init__(self, width: int, heads: int, *, other: int | None = None, bias: bool = False, sdpa: bool) -> None:
        super().__init__()
        self.heads, self.sdpa = heads, sdpa
        self.to_q = nn.Linear(width, width, bias=bias)
        self.to_k = nn.Linear(other or width, width, bias=bias)
        self.to_v = nn.Linear(other or width, width, bias=bias)
        self.to_out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, other: torch.Tensor | None = None) -> torch.Tensor:
        """Attend."""
        source = x if other is None else other
        q, k, v = self.to_q(x), self.to_k(source), self.to_v(source)
        return self.to_out(self._sdpa(q, k, v) if self.sdpa else self._written_out(q, k, v))

    def _sdpa(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        batch, _, width = q.shape
        q, k, v = (t.view(batch, -1, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, -1, width)

    def _written_out(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attend with the heads in the batch, as before there was scaled_dot_product_attention."""
        batch, _, width = q.shape
        size = width // self.heads
        q, k, v = (
            t.reshape(batch, -1, self.heads, size).permute(0, 2, 1, 3).reshape(batch * self.heads, -1, size)
            for t in (q, k, v)
        )
        scores = torch.matmul(q, k.transpose(-1, -2)) * size**-0.5
        result = torch.matmul(scores.softmax(dim=-1), v)
        return result.reshape(batch, self.heads, -1, size).permute(0, 2, 1, 3).reshape(batch, -1, width)


class GatedGelu(nn.Module):
    """A layer of which one half is the gate of the other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, 8 * width)
        self.out = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Widen, gate, narrow."""
        value, gate = self.proj(x).chunk(2, dim=-1)
        return self.out(value * F.gelu(gate))


class TransformerBlock(nn.Module):
    """Attention to the image, to the text, and a gated layer, each after a norm."""

    def __init__(self, width: int, heads: int, text: int, *, sdpa: bool) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.attn1 = Attention(width, heads, sdpa=sdpa)
        self.attn2 = Attention(width, heads, other=text, sdpa=sdpa)
        self.ff = GatedGelu(width)

    def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """Run the three branches."""
        x = x + self.attn1(self.norm1(x))
        x = x + self.attn2(self.norm2(x), text)
        return x + self.ff(self.norm3(x))


class SpatialTransformer(nn.Module):
    """A transformer block over the pixels of a feature map."""

    def __init__(self, width: int, heads: int, text: int, *, sdpa: bool) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, width, eps=1e-6)
        self.proj_in, self.proj_out = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.block = TransformerBlock(width, heads, text, sdpa=sdpa)

    def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """Run the block, and add what went in."""
        batch, width, high, wide = x.shape
        y = self.proj_in(self.norm(x)).permute(0, 2, 3, 1).reshape(batch, high * wide, width)
        y = self.block(y, text).reshape(batch, high, wide, width).permute(0, 3, 1, 2)
        return self.proj_out(y) + x


class ResnetBlock(nn.Module):
    """Two convolutions after norms and SiLU; the time is added between them."""

    def __init__(self, before: int, after: int, time: int | None) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, before, eps=1e-5), nn.GroupNorm(8, after, eps=1e-5)
        self.conv1 = nn.Conv2d(before, after, 3, padding=1)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1)
        self.time = nn.Linear(time, after) if time else None
        self.shortcut = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor | None = None) -> torch.Tensor:
        """Run both, and add what went in."""
        y = self.conv1(F.silu(self.norm1(x)))
        if self.time is not None and time is not None:
            y = y + self.time(F.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(y)))


class TimeEmbedding(nn.Module):
    """Sines and cosines of a time, and two layers."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.width = width
        self.linear1, self.linear2 = nn.Linear(width, out), nn.Linear(out, out)

    def forward(self, timestep: torch.Tensor) -> torch.Tensor:
        """Embed."""
        half = self.width // 2
        rates = torch.exp(-math.log(10000) * torch.arange(half, dtype=torch.float32) / half)
        angles = timestep[:, None] * rates[None]
        return self.linear2(F.silu(self.linear1(torch.cat([angles.cos(), angles.sin()], dim=-1))))


class SmallUNet(nn.Module):
    """One level down and up again, a transformer on each side."""

    def __init__(self, width: int, heads: int, text: int, *, sdpa: bool) -> None:
        super().__init__()
        time = 4 * width
        self.time = TimeEmbedding(width, time)
        self.conv_in = nn.Conv2d(4, width, 3, padding=1)
        self.down = ResnetBlock(width, width, time)
        self.down_attention = SpatialTransformer(width, heads, text, sdpa=sdpa)
        self.downsample = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.middle = ResnetBlock(width, 2 * width, time)
        self.middle_attention = SpatialTransformer(2 * width, heads, text, sdpa=sdpa)
        self.upsample = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.up = ResnetBlock(3 * width, width, time)
        self.up_attention = SpatialTransformer(width, heads, text, sdpa=sdpa)
        self.norm, self.conv_out = nn.GroupNorm(8, width), nn.Conv2d(width, 4, 3, padding=1)

    def forward(
        self, sample: torch.Tensor, timestep: torch.Tensor, encoder_hidden_states: torch.Tensor
    ) -> torch.Tensor:
        """Predict the noise of a sample at a time, given a text."""
        time = self.time(timestep)
        x = self.down_attention(self.down(self.conv_in(sample), time), encoder_hidden_states)
        y = self.middle_attention(self.middle(self.downsample(x), time), encoder_hidden_states)
        y = self.upsample(F.interpolate(y, scale_factor=2.0, mode="nearest"))
        y = self.up_attention(self.up(torch.cat([y, x], dim=1), time), encoder_hidden_states)
        return self.conv_out(F.silu(self.norm(y)))


def unet(size: Size, exporter: Exporter) -> Built:
    """Build a small UNet: GroupNorm, attention to itself and to a text, GEGLU."""
    width, text = (128, 192) if size == "full" else (16, 24)
    module = SmallUNet(width, 4, text, sdpa=exporter == "dy")
    weights.randomise(module, SEED)
    gen = weights.generator(SEED, "arguments")
    args = (
        torch.randn(2, 4, LATENT, LATENT, generator=gen),
        torch.rand(2, generator=gen) * 1000,
        torch.randn(2, 7, text, generator=gen),
    )
    fixed = {0: "batch"}
    return Built(
        module.eval(),
        args,
        {"sample": fixed, "timestep": fixed, "encoder_hidden_states": TEXT},
        {"out_sample": fixed},
    )


class PixelAttention(nn.Module):
    """Attention of one head over the pixels of a feature map, with biases."""

    def __init__(self, width: int, *, sdpa: bool) -> None:
        super().__init__()
        self.group_norm = nn.GroupNorm(8, width, eps=1e-6)
        self.attention = Attention(width, 1, bias=True, sdpa=sdpa)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend, and add what went in."""
        batch, width, high, wide = x.shape
        tokens = self.group_norm(x).view(batch, width, high * wide).transpose(1, 2)
        return self.attention(tokens).transpose(-1, -2).reshape(batch, width, high, wide) + x


class Decoder(nn.Module):
    """The middle of a VAE decoder, and one level up."""

    def __init__(self, width: int, *, sdpa: bool) -> None:
        super().__init__()
        self.post_quant, self.conv_in = nn.Conv2d(4, 4, 1), nn.Conv2d(4, width, 3, padding=1)
        self.before, self.after = ResnetBlock(width, width, None), ResnetBlock(width, width, None)
        self.attention = PixelAttention(width, sdpa=sdpa)
        self.upsample = nn.Conv2d(width, width, 3, padding=1)
        self.up = ResnetBlock(width, width // 2, None)
        self.norm, self.conv_out = nn.GroupNorm(8, width // 2, eps=1e-6), nn.Conv2d(width // 2, 3, 3, padding=1)

    def forward(self, latent_sample: torch.Tensor) -> torch.Tensor:
        """Decode a latent image."""
        x = self.conv_in(self.post_quant(latent_sample))
        x = self.after(self.attention(self.before(x)))
        x = self.up(self.upsample(F.interpolate(x, scale_factor=2.0, mode="nearest")))
        return self.conv_out(F.silu(self.norm(x)))


def vae(size: Size, exporter: Exporter) -> Built:
    """Build a VAE decoder: attention of one head among convolutions."""
    module = Decoder(256 if size == "full" else 32, sdpa=exporter == "dy")
    weights.randomise(module, SEED)
    latent = torch.randn(2, 4, LATENT, LATENT, generator=weights.generator(SEED, "arguments"))
    fixed = {0: "batch"}
    return Built(module.eval(), (latent,), {"latent_sample": fixed}, {"sample": fixed})


class RootMeanSquare(nn.Module):
    """A norm without a mean, written out: TorchScript's exporter has no translation of torch's own at opset 17."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalize the last axis."""
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class JointBlock(nn.Module):
    """Image and text attend to both together; a vector shifts, scales and gates each branch."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.modulate = nn.ModuleList(nn.Linear(width, 6 * width) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width, elementwise_affine=False, eps=1e-6) for _ in range(4))
        self.qkv = nn.ModuleList(nn.Linear(width, width) for _ in range(6))
        self.qk_norms = nn.ModuleList(RootMeanSquare(width // heads) for _ in range(4))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.ff = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))
            for _ in range(2)
        )

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], -1, self.heads, x.shape[-1] // self.heads).transpose(1, 2)

    def _projected(self, side: int, x: torch.Tensor) -> list[torch.Tensor]:
        q, k, v = (self._heads(layer(x)) for layer in self.qkv[3 * side : 3 * side + 3])
        return [self.qk_norms[2 * side](q), self.qk_norms[2 * side + 1](k), v]

    def forward(self, image: torch.Tensor, text: torch.Tensor, vector: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run the attention of both, then the layers of each."""
        streams = [image, text]
        parts = [layer(F.silu(vector))[:, None].chunk(6, dim=-1) for layer in self.modulate]
        normed = [self.norms[n](x) * (1 + parts[n][1]) + parts[n][0] for n, x in enumerate(streams)]
        joined = [torch.cat(pair, dim=2) for pair in zip(*(self._projected(n, x) for n, x in enumerate(normed)))]
        both = F.scaled_dot_product_attention(*joined).transpose(1, 2).flatten(2)
        sizes = image.shape[1]
        results = []
        for n, (x, attended) in enumerate(zip(streams, (both[:, :sizes], both[:, sizes:]))):
            x = x + parts[n][2] * self.out[n](attended)
            y = self.norms[2 + n](x) * (1 + parts[n][4]) + parts[n][3]
            results.append(x + parts[n][5] * self.ff[n](y))
        return tuple(results)


class JointTransformer(nn.Module):
    """Blocks of an MMDiT over tokens of an image and of a text."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.time = TimeEmbedding(width, width)
        self.blocks = nn.ModuleList(JointBlock(width, heads) for _ in range(layers))
        self.norm_out, self.proj_out = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 16)

    def forward(
        self, hidden_states: torch.Tensor, encoder_hidden_states: torch.Tensor, timestep: torch.Tensor
    ) -> torch.Tensor:
        """Predict the noise of the image's tokens."""
        image, text, vector = hidden_states, encoder_hidden_states, self.time(timestep)
        for block in self.blocks:
            image, text = block(image, text, vector)
        return self.proj_out(self.norm_out(image))


def mmdit(size: Size, exporter: Exporter) -> Built:
    """Build two blocks of an MMDiT (Stable Diffusion 3): joint attention, normalized queries and keys, modulation."""
    width = 256 if size == "full" else 32
    module = JointTransformer(width, 4, 2)
    weights.randomise(module, SEED)
    gen = weights.generator(SEED, "arguments")
    args = (
        torch.randn(2, LATENT, width, generator=gen),
        torch.randn(2, 7, width, generator=gen),
        torch.rand(2, generator=gen) * 1000,
    )
    fixed = {0: "batch"}
    return Built(
        module.eval(),
        args,
        {"hidden_states": fixed, "encoder_hidden_states": TEXT, "timestep": fixed},
        {"out_hidden_states": fixed},
    )
