"""A server of the official stubs, which answers with what it was sent."""

import pytest

from tests.serving.official import Official


@pytest.fixture
def official():
    server = Official()
    yield server
    server.close()


@pytest.fixture
def address(official):
    return f"127.0.0.1:{official.listen()}"
