"""Products by 0: whether their other factor counts, which must stay finite for 0 to come out."""

from collections.abc import Iterable

from deploykit.freezing.variable_updates.update_values import is_zero
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import Node

_PRODUCTS = frozenset({"Mul", "MulNoNan"})


class ZeroProducts:
    """The products of a graph of which a factor is 0, whatever is fed.

    Infinity and NaN times 0 are NaN, other than in integers and where MulNoNan has the 0 as its
    second input.
    """

    def __init__(self, graph: Graph) -> None:
        """Look at all products."""
        self._graph = graph
        self._factors = {
            node.name: factors
            for node in graph
            if node.op in _PRODUCTS
            for factors in [[each for each in node.data_inputs if not is_zero(graph, each)]]
            if len(factors) < len(node.data_inputs)
        }
        self.names = frozenset(self._factors)
        self.certain = frozenset(name for name in self.names if self._is_certain(graph[name]))
        """Those that are 0 whatever the other factor is."""

    def _is_certain(self, product: Node) -> bool:
        if product.op == "MulNoNan":
            return is_zero(self._graph, product.data_inputs[1])
        return str(product.attr("T")).startswith(("int", "uint"))

    def watched(self, products: Iterable[str]) -> list[str]:
        """Add a node with each factor of products that must be finite; return their names."""
        graph = self._graph
        found = []
        for product in sorted(products):
            for factor in self._factors[product]:
                name = graph.unique_name(f"{product}/factor")
                node = Node(name, "Identity", (factor,)).with_attrs(T=graph[product].attrs["T"])
                found.append(graph.add(node).name)
        return found
