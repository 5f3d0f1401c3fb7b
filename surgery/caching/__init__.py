"""The cache of steps and verdicts: what earlier runs have found out, on disk."""

from surgery.caching.folder import CacheFolder, default_folder
from surgery.caching.steps import Steps

__all__ = ["CacheFolder", "Steps", "default_folder"]
