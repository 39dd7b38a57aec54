"""What a tensor becomes where a batch is cut in parts; a rule may say that nothing is known."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import Node
from deploykit.transforms.core.shapes.known_shapes import Shapes
from deploykit.transforms.core.shapes.sizes import Shape, require


class Kind(Enum):
    """What a tensor without rows becomes in a part."""

    SAME = "what it is"
    COUNT = "one number, how many examples the part has"
    SHAPE = "a list that begins with that number and is the same otherwise"
    SIZES = "something that follows from that number"


@dataclass(frozen=True)
class Rows:
    """A tensor of which each example has so many rows, computed from that example alone."""

    each: int = 1


What = Kind | Rows
Kinds = Sequence[What]


class Facts:
    """What a rule may ask of the graph that a node stands in."""

    def __init__(self, graph: Graph) -> None:
        """Find the shapes of a graph."""
        self.graph = graph
        self._shapes = Shapes(graph)

    def shape(self, tensor: str) -> Shape:
        """Return a shape, -1 for open sizes. ValueError: its rank is not known."""
        return require(self._shapes.shape(tensor))

    def rank(self, node: Node, place: int = 0) -> int:
        """Return how many axes an input has. ValueError: that is not known."""
        return len(self.shape(node.data_inputs[place]))

    def numbers(self, node: Node, place: int) -> list[int]:
        """Return what a constant input holds. ValueError: it is none."""
        return [int(n) for n in require(self.graph.constant(node.data_inputs[place])).value.flat]

    def is_beside(self, tensor: str, rank: int) -> bool:
        """Say whether what is the same in all parts meets each row of a tensor of so many axes."""
        shape = self.shape(tensor)
        return len(shape) < rank or (len(shape) == rank and shape[0] == 1)


Rule = Callable[[Facts, Node, Kinds], What]
"""Makes of what a node reads what it gives. ValueError: nothing is known of that."""


def table(*rules: tuple[Rule, str]) -> dict[str, Rule]:
    """Return the rules by op."""
    return {op: rule for rule, ops in rules for op in ops.split()}


def must(holds: bool) -> None:
    """Raise ValueError where nothing is proved."""
    if not holds:
        raise ValueError("it may mix rows")


def same(kinds: Kinds) -> What:
    """Return that all are the same in all parts. ValueError: one is not."""
    must(all(kind == Kind.SAME for kind in kinds))
    return Kind.SAME


def first(kinds: Kinds) -> Rows:
    """Return the rows that are read first, beside what is the same in all parts."""
    rows, *rest = kinds
    same(rest)
    must(isinstance(rows, Rows))
    assert isinstance(rows, Rows)
    return rows


def common(kinds: Kinds) -> Rows:
    """Return the rows of which each example has equally many in all tensors that have rows."""
    found = {kind for kind in kinds if isinstance(kind, Rows)}
    must(len(found) == 1)
    must(all(isinstance(kind, Rows) or kind == Kind.SAME for kind in kinds))
    return found.pop()
