"""A PartitionedCall is its function's body, with the call's inputs in place of its arguments."""

from deploykit.transforms.inline_functions import inline_calls
from deploykit.transforms.ir.graph import Graph


def inline_partitionedcall(graph: Graph) -> None:
    """Replace each PartitionedCall by its function's body, also those inside it.

    The nodes of a body are named `<call>/<node>`. Other calls, such as StatefulPartitionedCall,
    stay as they are: `inline_functions` takes them all.
    """
    inline_calls(graph, frozenset({"PartitionedCall"}))
