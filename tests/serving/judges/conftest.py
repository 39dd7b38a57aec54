"""The server that all judges ask."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tests.serving.served import Served, free_port
from tests.serving.small_models import half_plus


@pytest.fixture(scope="session")
def served(tmp_path_factory) -> Iterator[SimpleNamespace]:
    """A server of half_plus_two, with gRPC at `.grpc` and REST at `.rest`."""
    folder = half_plus(tmp_path_factory.mktemp("models") / "half_plus_two", 2)
    port = free_port()
    server = Served(folder, f"--rest_api_port={port}")
    yield SimpleNamespace(grpc=server.address, rest=f"127.0.0.1:{port}")
    server.kill()
