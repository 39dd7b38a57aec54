"""What TensorFlow tells on its way, kept from people who did not ask for it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet(level: int = logging.WARNING) -> Iterator[None]:
    """Let TensorFlow's Python code say nothing below this level meanwhile.

    In a notebook it prints notes, such as which file it wrote, twice; the level of its logger
    would not hold, as TensorFlow sets that itself when it first says something.
    """
    logger = logging.getLogger("tensorflow")

    def matters(record: logging.LogRecord) -> bool:
        return record.levelno >= level

    logger.addFilter(matters)
    try:
        yield
    finally:
        logger.removeFilter(matters)
