"""The nodes of a model that a runtime executes with its default options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from surgery.base.errors import UsageError
from surgery.base.json_record import Record
from surgery.base.operators.subgraphs import nodes
from surgery.model.runtime.executed import Executed
from surgery.model.storage import without_alias
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.verdict.verifier import Verifier

if TYPE_CHECKING:
    from surgery.model.storage import StoredModel


@dataclass(frozen=True)
class ExecutedNodes(Record, keys="nodes ops=model executed"):
    """The nodes of a model by operator, and those that the runtime executes in their place."""

    model: Mapping[str, int]
    executed: Executed

    @property
    def nodes(self) -> int:
        """The number of nodes in the model."""
        return sum(self.model.values())


def executed_nodes(
    stored: StoredModel, inputs: InputsSpec | None = None, verify: VerifySpec | None = None, target: str = ""
) -> ExecutedNodes:
    """Run a model as deployed, on inputs that are legal for it, and count the executed nodes.

    `target` is the execution provider or the other runtime on which it runs, see `Target.deploys_on`. UsageError if the
    model does not run there.
    """
    skeleton = without_alias(stored.proto).SerializeToString(deterministic=True)
    with closing(Verifier(skeleton, inputs, verify)) as verifier:
        verifier.original.prepare()
        deployment = verifier.deployment(target)
        found = verifier.original.problem or deployment.original
        found = deployment.note or found
    if not isinstance(found, Executed):
        raise UsageError(f"the executed nodes are not known: {found}")
    return ExecutedNodes(Counter(node.op_type for node in nodes(stored.proto)), found)
