"""How the options of the shipped passes are filled in: no mapping and no list of names as a line of JSON."""

import typing

import pytest

from surgery.engine.registry.catalog import catalog
from surgery.features.workbench import field_kinds
from surgery.features.workbench.option_fields import Selection, fields_of


@pytest.mark.parametrize(
    "name, option, kind",
    [
        ("set-dims", "ports", "lists by name"),
        ("set-dims", "dims", "values by name"),
        ("rename", "nodes", "texts by name"),
        ("merge", "connect", "values by name"),
        ("set-dtype", "inputs", "texts by name"),
        ("insert-nodes", "text", "code"),
        ("insert-nodes", "nodes", "nodes"),
        ("add-outputs", "outputs", "tensors"),
        ("replace-subgraph", "rule", "rule"),
        ("replace-subgraph", "file", "text"),
        ("replace-op", "keeps", "choice"),
        ("prune-weights", "ops", "several"),
        ("inline-functions", "keep", "names"),
        ("insert-after", "operands", "list"),
        ("embed-preprocessing", "mean", "value or list"),
    ],
)
def test_an_option_is_filled_in_as_its_type_says(name: str, option: str, kind: str) -> None:
    found = next(one for one in catalog.find(name).options if one.name == option)
    assert field_kinds.of(found.annotation) == kind


def test_no_mapping_is_a_single_line() -> None:
    for declared in catalog.passes().values():
        for option in declared.options:
            kinds = [typing.get_origin(field_kinds.unannotated(one)) for one in field_kinds.parts_of(option.annotation)]
            if dict in kinds and field_kinds.of(option.annotation) != "tensors":
                assert field_kinds.of(option.annotation).endswith("by name"), (declared.name, option.name)


def test_several_of_a_few_have_choices() -> None:
    fields = {one.name: one for one in fields_of(catalog.find("prune-weights"), Selection())}
    assert fields["ops"].choices == ("Conv", "MatMul", "Gemm", "FusedMatMul") and fields["ops"].value
