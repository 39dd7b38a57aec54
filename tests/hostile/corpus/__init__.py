"""The cases, one module a class."""

import importlib
import pkgutil
from collections.abc import Iterator

from tests.hostile.case import Case


def cases() -> Iterator[Case]:
    """Yield every case, in the order of the classes' names."""
    for module in pkgutil.iter_modules(__path__):
        yield from importlib.import_module(f"{__name__}.{module.name}").CASES


def kinds() -> tuple[str, ...]:
    """Return the names of the classes."""
    return tuple(dict.fromkeys(case.kind for case in cases()))
