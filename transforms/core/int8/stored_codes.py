"""How a graph that `quantize_codes` wrote says what is in 8 bits."""

from deploykit.transforms.core.graph import Graph

ROUNDING = "FakeQuantWithMinMaxVars"
ROUNDS = "_rounds"
"""The attribute of a rounding that 8-bit layers came with; models have roundings of their own."""
OF_A_LAYER, FROM_FLOATS = "made", "read"
"""Its values: what an 8-bit layer makes, and what is made in float and read by one."""


def holds_codes(graph: Graph) -> bool:
    """Say whether layers of a graph compute in 8 bits by codes, as `quantize_codes` writes them."""
    return any(node.op == ROUNDING and node.attr(ROUNDS) for node in graph)
