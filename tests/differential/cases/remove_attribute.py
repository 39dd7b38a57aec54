"""Attributes go, from all nodes or from those of one op."""

from tests.differential.case import Case, Refusal, error_of
from tests.differential.graphs import colocated, fashion_tf1, marked

NAME = "remove_attribute"

CASES = [
    Case("of all nodes", marked, f"{NAME}(attribute_name=_mark)"),
    Case("of all nodes, said with a star", marked, f'{NAME}(attribute_name=_mark, op_name="*")'),
    Case("of one op", marked, f"{NAME}(attribute_name=_mark, op_name=MatMul)"),
    Case("one that has a default", marked, f"{NAME}(attribute_name=transpose_a)"),
    Case("one that no node has", marked, f"{NAME}(attribute_name=_other)"),
    Case("colocations", colocated, f"{NAME}(attribute_name=_class)"),
    Case("frozen Fashion, TF1", fashion_tf1, f"{NAME}(attribute_name=data_format)"),
    Refusal("no attribute", marked, NAME,
            "remove_attribute expects exactly one 'attribute_name' argument",
            error_of("parameter-missing", name="attribute_name")),
    Refusal("two attributes", marked, f"{NAME}(attribute_name=_a, attribute_name=_b)",
            "remove_attribute expects exactly one 'attribute_name' argument",
            error_of("parameter-twice", name="attribute_name")),
]  # fmt: skip
