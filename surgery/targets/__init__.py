"""Runtimes that a model is made for: what each of them runs, as data."""

from surgery.targets.target import STANDARD as STANDARD
from surgery.targets.target import Target as Target
