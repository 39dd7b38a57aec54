"""How much memory may be asked for."""

import os
import resource

from deploykit.transforms.core.errors import GraphError, LimitError
from deploykit.transforms.core.files.reading import MOST_RATIO, MOST_UNPACKED, said
from deploykit.transforms.core.running.child import limits


def room() -> int:
    """Return how many bytes there are at most: the cap that was set, or what the machine has."""
    cap = resource.getrlimit(resource.RLIMIT_DATA)[0]  # of a child process
    known = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), limits.memory, cap]
    return min(each for each in known if each is not None and each != resource.RLIM_INFINITY)


def check_room(size: int, what: str) -> None:
    """Raise LimitError for more bytes than there are; `what` takes them."""
    if size > (most := room()):
        raise LimitError("too-large-for-memory", what=what, size=said(size), most=said(most))


def check_unpacked(unpacked: int, packed: int, where: str) -> None:
    """Raise GraphError for a file that would unpack to what none does; LimitError: no room."""
    if unpacked > MOST_UNPACKED and unpacked > MOST_RATIO * packed:
        raise GraphError("archive-bomb", source=where, packed=said(packed), unpacked=said(unpacked))
    check_room(unpacked, f"{where}: unpacked")
