"""How lines of deploykit's log look on stderr."""

import logging

from deploykit.transforms.core.display.escaped import escaped

logger = logging.getLogger("deploykit")


class _Formatter(logging.Formatter):
    """`deploykit: warning: ...`; notes and debug lines without a level."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = f"{process}: " if process else ""

    def format(self, record: logging.LogRecord) -> str:
        level = "warning: " if record.levelno >= logging.WARNING else ""
        return f"deploykit: {self._process}{level}{escaped(record.getMessage())}"


def log_to_stderr(process: str = "") -> None:
    """Print the log on stderr, in lines that name the process where it has a name."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter(process))
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
