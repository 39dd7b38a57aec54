"""The memory limit of a server: a version that would exceed it is not served.

The limit applies to the resident memory of the process when a version is loaded, with its warm-up
and with all that the process holds at that time, also for requests. Later requests do not count:
their number and size have limits of their own.
"""

from pathlib import Path

from deploykit.serving.protocol.errors import ServingError
from deploykit.transforms.engines.engine_folder import FOLDER
from deploykit.transforms.runtime.memory import give_back
from deploykit.transforms.runtime.process_limits import usable_memory
from deploykit.transforms.runtime.resident_memory import resident

_MIB = 1 << 20


def default_limit() -> int:
    """Return the default limit in MiB: a share of the available memory, besides this process."""
    return (usable_memory() + resident()) // _MIB


class MemoryLimit:
    """The limit of one process."""

    def __init__(self, limit: int | None, workers: int = 1) -> None:
        """Limit to this number of MiB, which workers share; None: no limit."""
        self._most = None if limit is None else limit * _MIB // workers
        self._needed: dict[tuple[str, int], int] = {}  # of versions that were loaded and refused
        self._before: dict[tuple[str, int], int] = {}

    def check_files(self, name: str, version: int, folder: Path) -> None:
        """Raise ServingError if the weights alone exceed what is left, before they are read.

        The same applies to what the version took when it was loaded and refused, so that another
        attempt does not exceed the limit again.
        """
        if self._most is None:
            return
        files = (folder / "saved_model.pb", *(folder / "variables").glob("variables.*"))
        if (folder / FOLDER).is_dir():  # OpenVINO has its own weights
            files = ()
        size = sum(file.stat().st_size for file in files if file.is_file())
        size = max(size, self._needed.get((name, version), 0))
        self._before[name, version] = used = resident()
        if used + size > self._most:
            give_back()
            used = resident()
        if used + size > self._most:
            raise self._exceeded(name, version, used + size)

    def check_loaded(self, name: str, version: int) -> None:
        """Raise ServingError if the process exceeds the limit."""
        before = self._before.pop((name, version), 0)
        if self._most is None or resident() <= self._most:
            return
        give_back()
        if (used := resident()) > self._most:
            self._needed[name, version] = used - before
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
