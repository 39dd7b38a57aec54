"""The memory limit of a server: a version that would exceed it is not served.

The limit applies to the resident memory of the process when a version is loaded, with its warm-up
and with all that the process holds at that time. Requests do not count: their number and size have
limits of their own.
"""

from pathlib import Path

from deploykit.serving.protocol.errors import ServingError
from deploykit.transforms.engines.engine_folder import FOLDER
from deploykit.transforms.runtime.memory import give_back
from deploykit.transforms.runtime.process_limits import usable_memory
from deploykit.transforms.runtime.resident_memory import bound_address_space, resident

_MIB = 1 << 20


def default_limit() -> int:
    """Return the default limit in MiB: a share of the available memory, besides this process."""
    return (usable_memory() + resident()) // _MIB


def bound_allocations(limit: int) -> None:
    """Let allocations far beyond the limit (in MiB) fail, so that the machine does not run short.

    A process has more address space than resident memory, hence the distance to the limit.
    """
    bound_address_space(limit * _MIB)


class MemoryLimit:
    """The limit of one process."""

    def __init__(self, limit: int | None, workers: int = 1) -> None:
        """Limit to this number of MiB, which workers share; None: no limit."""
        self._most = None if limit is None else limit * _MIB // workers

    def check_files(self, name: str, version: int, folder: Path) -> None:
        """Raise ServingError if the weights alone exceed what is left, before they are read."""
        if self._most is None or (folder / FOLDER).is_dir():  # OpenVINO has its own weights
            return
        files = (folder / "saved_model.pb", *(folder / "variables").glob("variables.*"))
        size = sum(file.stat().st_size for file in files if file.is_file())
        used = resident()
        if used + size > self._most:
            give_back()
            used = resident()
        if used + size > self._most:
            raise self._exceeded(name, version, used + size)

    def check_loaded(self, name: str, version: int) -> None:
        """Raise ServingError if the process exceeds the limit."""
        if self._most is None or resident() <= self._most:
            return
        give_back()
        if (used := resident()) > self._most:
            raise self._exceeded(name, version, used)

    def _exceeded(self, name: str, version: int, used: int) -> ServingError:
        assert self._most is not None
        return ServingError(
            "RESOURCE_EXHAUSTED",
            "version-over-memory",
            model=name,
            version=version,
            got=used // _MIB,
            most=self._most // _MIB,
        )
