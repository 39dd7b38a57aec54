"""One worker with the original tool for all tests."""

import pytest

from tests.differential.original import Original


@pytest.fixture(scope="session")
def original():
    worker = Original()
    yield worker
    worker.close()
