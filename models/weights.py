"""Random weights that behave: no zero bias, no unit norm, no output that collapses or explodes.

A fresh network is a bad test model. Its biases are zeros and its norms are ones, so `x + 0` and `x * 1` can be
removed that no trained model has, and equal tensors merge into one; its batch statistics are not those of its
activations, so that the output of a deep one vanishes (MobileNetV2: 1e-29) or overflows.

Each tensor has its own generator, seeded with the seed and the tensor's name, so that a model's weights don't
depend on the order or the number of the others.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import torch
from torch import nn

NORM_SCALE = (0.6, 1.4)
BIAS_STD = 0.1
EMBEDDING_STD = 0.5
LOOSE_STD = 0.3
LAYER_SCALE = (0.3, 0.8)


def generator(seed: int, name: str) -> torch.Generator:
    """Make the generator of one named tensor."""
    return torch.Generator().manual_seed((seed << 32) + zlib.crc32(name.encode()))


def randomise(module: nn.Module, seed: int, *, embedding_std: float = EMBEDDING_STD) -> None:
    """Draw every parameter of `module` anew, in place.

    Matrices and kernels are normal with variance 1 / fan-in, so that a layer keeps the variance of what it reads;
    scales of norms are uniform around 1, biases normal with standard deviation 0.1.
    """
    with torch.no_grad():
        seen: set[int] = set()
        for name, owner, leaf, param in _parameters(module):
            if id(param) in seen:  # tied: one tensor, two names
                continue
            seen.add(id(param))
            gen = generator(seed, name)
            if leaf == "bias" or leaf.endswith("_bias"):
                param.normal_(0.0, BIAS_STD, generator=gen)
            elif "layer_scale" in leaf or leaf.startswith("lambda"):
                param.uniform_(*LAYER_SCALE, generator=gen)
            elif isinstance(owner, nn.Embedding):
                param.normal_(0.0, embedding_std, generator=gen)
            elif param.ndim == 1:
                param.uniform_(*NORM_SCALE, generator=gen)
            elif leaf == "weight":
                param.normal_(0.0, _fan_in(owner, param) ** -0.5, generator=gen)
            else:  # class tokens, position tables, relative biases
                param.normal_(0.0, LOOSE_STD, generator=gen)


def _parameters(module: nn.Module) -> Iterator[tuple[str, nn.Module, str, nn.Parameter]]:
    """Yield (full name, owner, name in the owner, parameter) of each parameter."""
    for prefix, owner in module.named_modules():
        for leaf, param in owner.named_parameters(recurse=False):
            yield (f"{prefix}.{leaf}" if prefix else leaf), owner, leaf, param


def _fan_in(owner: nn.Module, weight: torch.Tensor) -> int:
    """Count the products that one output of a layer sums."""
    if type(owner).__name__ == "Conv1D":  # GPT-2's Linear, stored (in, out)
        return int(weight.shape[0])
    return int(weight[0].numel())


def scale(module: nn.Module, suffix: str, factor: float) -> None:
    """Multiply each parameter whose name ends in `suffix` by `factor`, in place."""
    hits = [p for name, p in module.named_parameters() if name.endswith(suffix)]
    if not hits:
        raise ValueError(f"no parameter ends in {suffix!r}")
    with torch.no_grad():
        for param in hits:
            param.mul_(factor)


def calibrate(module: nn.Module, args: tuple[torch.Tensor, ...], seed: int) -> None:
    """Set the running statistics of each BatchNormalization near those of its real activations, in place.

    One pass in training mode over `args` measures the statistics; random factors and shifts then make them
    as inexact as those of a trained model are on new data: means move by 0.2 standard deviations, variances
    by a factor of 0.7 to 1.4.
    """
    norms = [(n, m) for n, m in module.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    was_training = module.training
    module.eval()
    for _, norm in norms:
        norm.train()
        norm.momentum = None  # a plain average, so that one pass is enough
        norm.reset_running_stats()
    with torch.no_grad():
        module(*args)
        for name, norm in norms:
            gen = generator(seed, name + ".statistics")
            mean, var = norm.running_mean, norm.running_var
            assert mean is not None and var is not None
            mean.add_(torch.empty_like(mean).normal_(0.0, 0.2, generator=gen) * var.sqrt())
            var.mul_(torch.empty_like(var).uniform_(0.7, 1.4, generator=gen)).add_(1e-3)
            norm.momentum = 0.1
    module.train(was_training)
