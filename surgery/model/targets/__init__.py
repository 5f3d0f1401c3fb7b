"""Runtimes that a model is made for: the supported features and kernels of each runtime, as data."""

from surgery.model.targets.target import STANDARD as STANDARD
from surgery.model.targets.target import Target as Target
