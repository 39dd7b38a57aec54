"""A node gets another name, and so do the inputs of those who read it."""

from tests.differential.case import Case, Refusal, error_of
from tests.differential.cases.remove_nodes import chain, fan_out, reader_with_control, second_port
from tests.differential.graphs import fashion_keras, net, two_layers

NAME = "rename_node"


def renamed(old: str, new: str) -> str:
    return f'{NAME}(old_node_name="{old}", new_node_name="{new}")'


CASES = [
    Case("in a chain", net(chain), renamed("two", "deux")),
    Case("read three times", net(fan_out), renamed("same", "scope/same_1")),
    Case("read by port", net(second_port), renamed("parts", "thirds")),
    Case("waited for", net(reader_with_control), renamed("same", "other")),
    Case("several", net(fan_out), f"{renamed('a', 'z')} {renamed('b', 'a')} {renamed('z', 'b')}"),
    Case("a name that starts alike", net(chain), renamed("one", "one/read")),
    Case("several outputs", net(second_port, outputs=("out", "parts")), renamed("same", "third")),
    Case("small net", two_layers, renamed("relu", "activation"), deviations=("pruned",)),
    Case("an input of a frozen net is read by another name", fashion_keras,
         renamed("fashion_1/batch_normalization_1/batchnorm/add/y", "epsilon")),
    Refusal("the new name is taken", net(fan_out), renamed("a", "b"),
            "A node is alreading using b",
            error_of("new-name-taken", name="b")),
    Refusal("no new name", net(fan_out), f"{NAME}(old_node_name=a)",
            "rename_node expects exactly one 'old_node_name' and",
            error_of("parameter-missing", name="new_node_name")),
    Refusal("no old name", net(fan_out), f"{NAME}(new_node_name=a)",
            "rename_node expects exactly one 'old_node_name' and",
            error_of("parameter-missing", name="old_node_name")),
]  # fmt: skip
