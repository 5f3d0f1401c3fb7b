"""Arguments of the commands that measure time."""

from __future__ import annotations

import argparse
import math


def add_arguments(parser: argparse._ActionsContainer, what: str) -> None:
    """Add the shared arguments. `what` is the quantity that has a confidence level."""
    parser.add_argument("--threads", metavar="N", type=count, default=1, help="intra-op threads (default: 1)")
    parser.add_argument("--level", metavar="P", type=share, default=0.95, help=f"confidence of {what} (default: 0.95)")
    parser.add_argument("--seed", metavar="N", type=natural, default=0, help="seed of inputs and orders (default: 0)")


def count(text: str) -> int:
    """Read a number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of at least 1")
    return int(text)


def natural(text: str) -> int:
    """Read a number of at least 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a non-negative integer")
    return int(text)


def positive(text: str) -> float:
    """Read a positive number."""
    value = _number(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
    return value


def share(text: str) -> float:
    """Read a number between 0 and 1."""
    value = _number(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number between 0 and 1")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
