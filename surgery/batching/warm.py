"""What the process has to have imported from which the workers of a batch are forked: everything."""

from surgery.batching import job
from surgery.registry import discovery

discovery.import_standard()

__all__ = ["job"]
