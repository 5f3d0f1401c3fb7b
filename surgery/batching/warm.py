"""Imports for the process from which the workers of a batch are forked."""

from surgery.batching import job
from surgery.registry import discovery

discovery.import_standard()

__all__ = ["job"]
