"""Lines of the log: their form, and that a command prints none twice."""

import logging

import pytest

from deploykit.transforms.common import messages


@pytest.fixture
def logger():
    """Yield the log of the package, and restore its handlers."""
    found = logging.getLogger("deploykit")
    before = found.handlers, found.propagate, found.level
    yield found
    found.handlers, found.propagate = before[:2]
    found.setLevel(before[2])


@pytest.mark.parametrize(("repeats", "count"), [(False, 1), (True, 2)])
def test_a_line_is_printed_twice_only_by_a_server(logger, capsys, repeats, count):
    messages.log_to_stderr(repeats=repeats)
    for number in (1, 2, 1):
        logger.info("%d classes", number)
        logger.warning("a\nb")
        logger.info("again", extra={"repeats": True})
    lines = capsys.readouterr().err.splitlines()
    assert lines.count("deploykit: 1 classes") == count
    assert lines.count("deploykit: 2 classes") == 1
    assert lines.count("deploykit: again") == 3
    assert lines.count("deploykit: warning: a\\nb") == (3 if repeats else 1)
