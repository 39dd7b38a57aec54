"""A PartitionedCall can be replaced by its function's body, applied to the call's inputs."""

from deploykit.transforms.inline_functions import inline_calls
from deploykit.transforms.ir.graph import Graph


def inline_partitionedcall(graph: Graph) -> None:
    """Replace each PartitionedCall, including nested ones, by its function's body.

    The nodes of a body are named `<call>/<node>`. Other calls, such as StatefulPartitionedCall, are
    not changed; `inline_functions` inlines all of them.
    """
    inline_calls(graph, frozenset({"PartitionedCall"}))
