"""How long a name may be that a caller sends: models, labels, signatures, aliases, services."""

from collections.abc import Iterable

from deploykit.serving.protocol.errors import ServingError, refused

MAX_NAME_BYTES = 256


def check_name(what: str, name: str) -> None:
    """Raise ServingError for a name that nobody looks up, counts or repeats: it is too long."""
    # A letter has a byte at least, so most names need not be encoded to be judged.
    if len(name) > MAX_NAME_BYTES or (
        not name.isascii() and len(name.encode(errors="replace")) > MAX_NAME_BYTES
    ):
        raise too_long(what)


def check_names(what: str, names: Iterable[str]) -> None:
    """Raise ServingError as `check_name` for each of several."""
    for name in names:
        check_name(what, name)


def too_long(what: str) -> ServingError:
    """Return the error about a name, which does not repeat it."""
    return refused("name-too-long", what=what, most=MAX_NAME_BYTES)
