"""Imports for the process from which the workers of a batch are forked."""

from surgery.engine.batching import job
from surgery.engine.registry import discovery

discovery.import_standard()

__all__ = ["job"]
