"""Tensors that have to share something, such as a scale: disjoint sets."""

from collections.abc import Iterator


class TensorGroups:
    """Groups of tensors, each known by one of its members: the leader."""

    def __init__(self) -> None:
        """Start without tensors."""
        self._next: dict[str, str] = {}
        """Each tensor names another one of its group, the leader itself."""

    def __contains__(self, tensor: str) -> bool:
        return tensor in self._next

    def __iter__(self) -> Iterator[str]:
        return iter(self._next)

    def add(self, tensor: str) -> None:
        """Make a tensor a group of its own, unless it is in one."""
        self._next.setdefault(tensor, tensor)

    def join(self, tensor: str, other: str) -> None:
        """Make one group of those of two tensors."""
        self._next[self.leader(tensor)] = self.leader(other)

    def leader(self, tensor: str) -> str:
        """Return the one that stands for a tensor's group."""
        while (after := self._next[tensor]) != tensor:
            self._next[tensor] = self._next[after]
            tensor = self._next[tensor]
        return tensor
