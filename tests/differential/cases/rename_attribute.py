"""Attributes get another name, on all nodes or on those of one op."""

from tests.differential.case import Case, Refusal, error_of
from tests.differential.graphs import marked

NAME = "rename_attribute"
NAMES = "old_attribute_name=_mark, new_attribute_name=_sign"

CASES = [
    Case("of all nodes", marked, f"{NAME}({NAMES})"),
    Case("of all nodes, said with a star", marked, f'{NAME}({NAMES}, op_name="*")'),
    Case("of one op", marked, f"{NAME}({NAMES}, op_name=LeakyRelu)"),
    Case("of an op that does not occur", marked, f"{NAME}({NAMES}, op_name=Relu)"),
    Case("there and back", marked, f"{NAME}({NAMES}) "
         f"{NAME}(old_attribute_name=_sign, new_attribute_name=_mark)"),
    Refusal("no new name", marked, f"{NAME}(old_attribute_name=_mark)",
            "rename_attribute expects exactly one 'old_attribute_name' and",
            error_of("parameter-missing", name="new_attribute_name")),
    Refusal("no old name", marked, f"{NAME}(new_attribute_name=_mark)",
            "rename_attribute expects exactly one 'old_attribute_name' and",
            error_of("parameter-missing", name="old_attribute_name")),
]  # fmt: skip
