"""A graph needs only the functions that it references, directly or through other functions."""

from deploykit.transforms.ir.functions import reachable
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.protos import FunctionDefLibrary


def remove_unused_functions(graph: Graph) -> None:
    """Remove functions without references, and the gradients registered for them."""
    graph.prune()
    used = reachable(graph)
    library = graph.library
    graph.library = FunctionDefLibrary(
        function=[f for f in library.function if f.signature.name in used],
        gradient=[g for g in library.gradient if g.function_name in used],
        registered_gradients=[g for g in library.registered_gradients if g.gradient_func in used],
    )
