"""The server that all judges ask."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tests.serving.echo_model import echo
from tests.serving.served import Served, free_port
from tests.serving.small_models import half_plus


@pytest.fixture(scope="session")
def served(tmp_path_factory) -> Iterator[SimpleNamespace]:
    """A server of half_plus_two and of echo, with gRPC at `.grpc` and REST at `.rest`."""
    base = tmp_path_factory.mktemp("models")
    half_plus(base / "half_plus_two", 2)
    echo(base / "echo")
    config = base / "models.config"
    lines = [
        f'config {{ name: "{name}" base_path: "{base / name}" model_platform: "tensorflow" }}'
        for name in ("half_plus_two", "echo")
    ]
    config.write_text(f"model_config_list {{ {' '.join(lines)} }}")
    port = free_port()
    server = Served(f"--model_config_file={config}", f"--rest_api_port={port}")
    yield SimpleNamespace(grpc=server.address, rest=f"127.0.0.1:{port}")
    server.kill()
