"""The client and the commands against deploykit's own server, as a process of its own."""

import re

import numpy as np
import pytest

import deploykit as package
from tests.deploykit.conftest import command_line
from tests.serving.served import Served
from tests.serving.small_models import half_plus
from tests.support import Containing, says


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = half_plus(tmp_path_factory.mktemp("models") / "half_plus_two", 2.0)
    server = Served(folder)
    yield server
    server.kill()


@pytest.fixture
def client(server):
    with package.Client(server.address) as client:
        yield client


def test_all_calls(client):
    assert client.health() == "SERVING"
    assert [(each.version, each.state) for each in client.status("half_plus_two")] == [
        (123, "AVAILABLE")
    ]
    signatures = client.metadata("half_plus_two")
    assert signatures["serving_default"].inputs["x"].dtype == "float32"
    for x in ([[2.0]], np.float32([[2.0]])):
        assert client.predict("half_plus_two", {"x": x})["y"].tolist() == [[3.0]]
    examples = [{"x": 2.0}, {"x": 4.0}]
    classes = client.classify("half_plus_two", examples, signature="classify_x_to_y")
    assert classes == [[("", 3.0)], [("", 4.0)]]
    numbers = client.regress("half_plus_two", examples, signature="regress_x_to_y")
    assert numbers.tolist() == [3.0, 4.0]


def test_what_is_served_is_named_for_a_model_that_is_not(server):
    """By each command that asks a server; TensorFlow Serving's own words come first."""
    for command in ("predict --input=1", "status", "load-test --data=x.npz"):
        name, *more = command.split()
        for asked, known in (
            (["half_plus_tow"], says("models-served", names="half_plus_two (NOT_FOUND)")),
            (
                ["half_plus_two", "--version=7"],
                says("versions-served", model="half_plus_two", versions=Containing("123 (")),
            ),
        ):
            found = command_line(name, server.address, *asked, *more)
            assert found.status == 2
            assert re.search(known, found.stderr)
            assert found.stderr.startswith(f"deploykit: error: {server.address}: ")


def test_reload(server, client, tmp_path):
    three = half_plus(tmp_path / "three", 3.0)
    two = half_plus(tmp_path / "two", 2.0)
    lines = [
        f'config {{ name: "{name}" base_path: "{folder}" model_platform: "tensorflow" }}'
        for name, folder in (("half_plus_three", three), ("half_plus_two", two))
    ]
    client.reload(f"model_config_list {{ {' '.join(lines)} }}")
    assert client.predict("half_plus_three", {"x": [[2.0]]})["y"].tolist() == [[4.0]]
