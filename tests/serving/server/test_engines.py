"""A server whose versions OpenVINO computes answers as any other, and holds no TensorFlow."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from deploykit.serving.client.client import Client
from deploykit.serving.client.endpoint import CallError
from deploykit.transforms.common.errors import MissingPackageError
from tests.hidden_packages import TENSORFLOW, hiding
from tests.serving.engine_versions import alone, mixed, needs_openvino
from tests.serving.served import Served, free_port
from tests.support import Containing, says, shows

MODEL = "m"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    base = tmp_path_factory.mktemp("engines")
    alone(base / MODEL, 2.0, 1)
    monitoring = base / "monitoring.txt"
    monitoring.write_text('prometheus_config { enable: true path: "/metrics" }')
    rest = free_port()
    server = Served(f"--model_base_path={base / MODEL}", f"--model_name={MODEL}",
                    f"--rest_api_port={rest}", f"--monitoring_config_file={monitoring}",
                    "--enable_batching", "--engine=openvino",
                    "--file_system_poll_wait_seconds=0.1", forked=False)  # fmt: skip
    server.base, server.rest = base, f"http://127.0.0.1:{rest}"
    yield server
    server.kill()


def page(url, document=None):
    body = None if document is None else json.dumps(document).encode()
    with urllib.request.urlopen(url, body, timeout=30) as answer:
        return answer.read().decode()


@pytest.mark.sampled
@needs_openvino
def test_no_tensorflow_is_in_the_process(served):
    with Client(served.address) as client:
        for rows in (1, 0, 3, 1000):
            x = np.arange(rows, dtype=np.float32).reshape(rows, 1)
            assert client.predict(MODEL, {"x": x})["y"].tolist() == (x / 2 + 2).tolist()
        assert client.metadata(MODEL).keys() == {"serving_default"}
    maps = Path(f"/proc/{served.process.pid}/maps").read_text()
    assert "libopenvino" in maps
    assert "/tensorflow/" not in maps
    answer = page(f"{served.rest}/v1/models/{MODEL}:predict", {"instances": [[2.0], [5.0]]})
    assert json.loads(answer) == {"predictions": [[3.0], [4.5]]}
    words = ':deploykit:serving:engine{model_name="m",model_version="1",engine="openvino 20'
    assert words in page(f"{served.rest}/metrics")


@pytest.mark.sampled
@needs_openvino
def test_without_tensorflow_signatures_that_need_it_are_marked_and_refused(tmp_path):
    """Metadata says so before any request; the other signatures are served."""
    variables = hiding(tmp_path, *TENSORFLOW)
    rest = free_port()
    server = Served(f"--model_base_path={mixed(tmp_path / MODEL).parent}", f"--model_name={MODEL}",
                    f"--rest_api_port={rest}", **variables)  # fmt: skip
    missing = str(MissingPackageError("package-missing", title="TensorFlow", extra="tf"))
    refused = {"classify_x_to_y", "regress_x_to_y"}
    try:
        with Client(server.address) as client:
            x = np.float32([[2.0]])
            assert client.predict(MODEL, {"x": x})["y"].tolist() == [[3.0]]
            found = {name: each.unavailable for name, each in client.metadata(MODEL).items()}
            needs = says("needs-tensorflow", install=Containing(".[tf]"))
            with pytest.raises(CallError, match=f"'regress_x_to_y' {needs}") as no:
                client.regress(MODEL, [{"x": [2.0]}], signature="regress_x_to_y")
            assert no.value.status == "FAILED_PRECONDITION"
        assert {name for name, why in found.items() if why} == refused
        assert all(missing in found[name] for name in refused)
        document = json.loads(page(f"http://127.0.0.1:{rest}/v1/models/{MODEL}/metadata"))
        assert document["metadata"]["unavailable_signatures"] == {n: found[n] for n in refused}
        for address in (server.address, f"http://127.0.0.1:{rest}"):
            command = [sys.executable, "-m", "deploykit", "status", address, MODEL]
            done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True,
                                  text=True, check=True)  # fmt: skip
            fields = {"signature": "regress_x_to_y", "reason": Containing(missing)}
            assert shows(done.stdout, "signature-unavailable", **fields)
    finally:
        server.kill()


@pytest.mark.sampled
@needs_openvino
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            np.ones((1, 1), np.int32),
            says(
                "call-failed",
                grpc_status="INVALID_ARGUMENT",
                reason=Containing(" float ", " int32"),
            ),
        ),
        (
            np.ones((2, 3), np.float32),
            says("call-failed", grpc_status="INVALID_ARGUMENT", reason=Containing(" [2")),
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_the_same_words(served, given, words):
    with Client(served.address) as client, pytest.raises(CallError, match=words) as error:
        client.predict(MODEL, {"x": given})
    assert error.value.status == "INVALID_ARGUMENT"


@pytest.mark.sampled
@needs_openvino
def test_another_version_takes_over_and_the_old_one_is_gone(served):
    alone(served.base / "new", 3.0, 2).rename(served.base / MODEL / "2")
    x, found, end = np.ones((1, 1), np.float32), set(), time.monotonic() + 60
    with Client(served.address) as client:
        while 3.5 not in found:
            assert time.monotonic() < end, served.said
            found.add(float(client.predict(MODEL, {"x": x})["y"][0, 0]))
        assert found <= {2.5, 3.5}
        while {each.version: each.state for each in client.status(MODEL)} != {
            1: "END", 2: "AVAILABLE"
        }:  # fmt: skip
            assert time.monotonic() < end, served.said
    shown = page(f"{served.rest}/metrics")
    assert 'engine{model_name="m",model_version="2",engine="openvino' in shown
    assert 'engine{model_name="m",model_version="1"' not in shown
