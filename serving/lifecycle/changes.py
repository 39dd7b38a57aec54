"""Changes that are noted under a lock and told outside it, each once and in their order."""

import logging
import threading
from collections import deque
from collections.abc import Callable

from deploykit.serving.protocol.version_status import VersionStatus

logger = logging.getLogger("deploykit")


class Changes:
    """What happened to versions and has not been told yet."""

    def __init__(self, listener: Callable[[str, VersionStatus], None]) -> None:
        """Keep who is told."""
        self._listener = listener
        self._noted: deque[tuple[str, VersionStatus]] = deque()
        self._telling = threading.Lock()

    def note(self, name: str, status: VersionStatus) -> None:
        """Remember a change of a model's version."""
        self._noted.append((name, status))

    def tell(self) -> None:
        """Return when the listener has heard all that was noted before; its failures are logged."""
        with self._telling:
            while self._noted:
                name, status = self._noted.popleft()
                try:
                    self._listener(name, status)
                except Exception:
                    logger.exception("telling of version %d of %s failed", status.version, name)
