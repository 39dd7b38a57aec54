"""What several tests of the server start from."""

import pytest

from tests.serving.certificates import Authority
from tests.serving.infer_server import infer_server


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("other"), "other")


@pytest.fixture(scope="session")
def inference(tmp_path_factory):
    """A server of models for the Open Inference Protocol, and its access log."""
    started = infer_server(tmp_path_factory.mktemp("models"))
    yield started
    started.server.kill()
