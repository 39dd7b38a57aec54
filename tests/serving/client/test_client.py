"""The client over a real wire: values, retries, deadlines, sizes, TLS, errors."""

import re
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest

from deploykit.serving.client.client import Client
from deploykit.serving.client.endpoint import DEFAULT_CONNECTION, CallError
from deploykit.serving.client.rest_client import RestClient
from deploykit.serving.protocol.signatures import Tensor
from deploykit.serving.protocol.versions import VersionStatus
from deploykit.transforms.common.errors import Error, FileError
from tests.serving.certificates import Authority
from tests.serving.official import credentials, pixels
from tests.support import Containing, because, raises, says, shows


@pytest.fixture
def client(official):
    with Client(f"127.0.0.1:{official.listen()}", timeout=20) as client:
        yield client


def failed(act, *arguments, **more) -> CallError:
    with pytest.raises(CallError) as raised:
        act(*arguments, **more)
    assert "\n" not in str(raised.value)
    return raised.value


@pytest.mark.parametrize(
    "array",
    [
        pixels(2, 3), np.arange(5), np.array([b"a", b"\xff"], object), np.array(True),
        np.array([[1 + 2j]]), np.zeros((0, 3), np.uint8), np.array([1.5], np.float16),
    ],
)  # fmt: skip
def test_arrays_go_and_come_as_they_are(client, array):
    answer = client.predict("echo", {"x": array})
    assert list(answer) == ["x"]
    assert answer["x"].dtype == array.dtype
    assert answer["x"].shape == array.shape
    assert (answer["x"] == array).all()


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(2.0, "float32"), ([1, 2], "int32"), ([1 << 40], "int64"), ("text", "object"),
     ([[True]], "bool"), (np.float64(1), "float64")],
)  # fmt: skip
def test_numbers_and_lists_become_what_tensorflow_makes_of_them(client, value, dtype):
    assert client.predict("echo", {"x": value})["x"].dtype == dtype


def test_a_request_says_whom_it_is_for(official, client):
    client.predict("echo", {"x": 1.0}, version=7, signature="s", outputs=["x", "y"])
    spec = official.requests[0].model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("echo", 7, "s")
    assert list(official.requests[0].output_filter) == ["x", "y"]
    client.predict("echo", {}, version=0)
    assert official.requests[1].model_spec.HasField("version")
    client.predict("echo", {}, label="stable")
    assert official.requests[2].model_spec.version_label == "stable"
    assert not official.requests[2].model_spec.HasField("version")
    with raises(Error, "version-and-label"):
        client.predict("echo", {}, version=1, label="stable")


def test_examples_are_made_of_dicts(official, client):
    examples = [{"x": 2.0, "n": [1, 2], "t": "é", "b": b"\xff"}, {"x": np.float32([4, 5])}]
    assert client.regress("echo", examples).tolist() == [3.0, 4.0]
    assert client.classify("echo", [{"x": 2.0, "n": 1}]) == [[("n", 0.5), ("x", 0.5)]]
    sent = official.requests[0].input.example_list.examples
    kinds = {k: v.WhichOneof("kind") for k, v in sent[0].features.feature.items()}
    assert kinds == {"x": "float_list", "n": "int64_list", "t": "bytes_list", "b": "bytes_list"}
    assert list(sent[0].features.feature["n"].int64_list.value) == [1, 2]
    assert sent[0].features.feature["t"].bytes_list.value[0] == "é".encode()
    assert list(sent[1].features.feature["x"].float_list.value) == [4, 5]
    client.classify("echo", [{"x": 1}], context={"user": 3})
    given = official.requests[2].input.example_list_with_context
    assert given.context.features.feature["user"].int64_list.value[0] == 3
    assert len(given.examples) == 1
    with raises(Error, "feature-mixed", name="x"):
        client.classify("echo", [{"x": [1, "a"]}])


def test_metadata_and_status(client):
    signatures = client.metadata("echo")
    assert list(signatures) == ["serving_default"]
    assert signatures["serving_default"].inputs == {"x": Tensor("in_x:0", "float32", (-1, 2))}
    assert signatures["serving_default"].outputs["x"].name == "out_x:0"
    assert client.status("echo") == [
        VersionStatus(2, "AVAILABLE"),
        VersionStatus(1, "END", "INVALID_ARGUMENT", "no SavedModel"),
    ]


def config(name: str) -> str:
    return f'model_config_list {{ config {{ name: "{name}" base_path: "/m" }} }}'


def test_reload(official, client):
    client.reload(config("good"))
    assert official.requests[0].config.model_config_list.config[0].base_path == "/m"
    error = failed(client.reload, config("bad"))
    assert error.status == "INVALID_ARGUMENT"
    assert "no such folder" in str(error)
    with raises(Error, "models-config-text"):
        client.reload("nonsense {")


@pytest.mark.sampled
def test_an_answer_of_5_mb_passes(client):
    large = np.zeros(4 << 20, np.float32)
    assert client.predict("large", {})["y"].nbytes == 5_242_880
    assert client.predict("echo", {"x": large})["x"].nbytes == 16 << 20


def test_a_damaged_answer_is_said_to_be_one(client):
    error = failed(client.predict, "damaged", {"x": pixels(2)})
    assert error.status == "DATA_LOSS"
    assert shows(error, "response-damaged", reason=Containing("parsing"))


def test_the_status_of_the_server_is_kept(client, official):
    error = failed(client.predict, "missing", {})
    assert error.status == "NOT_FOUND"
    assert str(error).startswith("127.0.0.1:")
    assert shows(error, "call-not-found", reason=Containing("Latest(missing)"))
    assert failed(client.predict, "full", {}).status == "RESOURCE_EXHAUSTED"
    assert official.calls == ["Predict", "Predict"]
    assert error.exit_status == 2


@pytest.mark.sampled
def test_what_changes_nothing_is_repeated_while_the_server_is_unavailable(client, official):
    assert client.predict("busy", {"x": 1.0})["x"] == 1
    assert official.calls == ["Predict"] * 3
    official.calls.clear()
    client.status("busy")
    assert official.calls == ["GetModelStatus"] * 3


@pytest.mark.sampled
def test_a_large_request_is_repeated_too(client, official):
    large = np.zeros(4 << 20, np.float32)
    assert client.predict("busy", {"x": large})["x"].shape == large.shape
    assert official.calls == ["Predict"] * 3


def test_a_reload_is_never_repeated(client, official):
    assert failed(client.reload, config("busy")).status == "UNAVAILABLE"
    assert official.calls == ["Reload"]


def test_retries_can_be_turned_off(official):
    with Client(f"127.0.0.1:{official.listen()}", retries=0) as client:
        assert failed(client.predict, "busy", {}).status == "UNAVAILABLE"
    assert official.calls == ["Predict"]


def test_a_deadline_that_passed_is_not_repeated(client, official):
    error = failed(client.predict, "slow", {})
    assert error.status == "DEADLINE_EXCEEDED"
    assert error.exit_status == 6
    assert official.calls == ["Predict"]


@pytest.mark.sampled
def test_a_call_ends_at_its_deadline(official):
    with Client(f"127.0.0.1:{official.listen()}", timeout=0.2) as client:
        error = failed(client.predict, "sleepy", {})
    assert error.status == "DEADLINE_EXCEEDED"
    assert shows(error, "response-timeout", seconds=0.2)


def free_port() -> int:
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return int(each.getsockname()[1])


@pytest.mark.sampled
def test_no_server():
    port = free_port()
    with Client(f"127.0.0.1:{port}", timeout=20) as client:
        error = failed(client.predict, "echo", {})
    assert error.status == "UNAVAILABLE"
    reason = Containing("Failed to connect", "host: Connection refused")
    said = says("server-unavailable", source=f"127.0.0.1:{port}", reason=reason)
    assert re.match(said, str(error))


@pytest.mark.sampled
def test_a_server_that_starts_meanwhile_answers(official):
    port = free_port()
    starter = threading.Timer(0.1, official.listen, [f"127.0.0.1:{port}"])
    starter.start()
    with Client(f"127.0.0.1:{port}", timeout=20, retries=4) as client:
        assert client.predict("echo", {"x": 1.0})["x"] == 1
    starter.join()


@pytest.mark.parametrize(
    "address", ["localhost", "", ":8500", "127.0.0.1:", "localhost:65536", "http://localhost:8500"]
)
def test_an_address_is_a_host_and_a_port(address):
    with raises(Error, "grpc-address"):
        Client(address)


def test_the_port_of_rest_is_said_to_be_one():
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Quiet(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever).start()
    with Client(f"127.0.0.1:{server.server_port}", timeout=20, retries=0) as client:
        assert shows(failed(client.predict, "echo", {}), "server-unavailable")
    server.shutdown()
    server.server_close()


def test_a_unix_socket(official, tmp_path):
    path = f"unix:{tmp_path}/socket"
    official.listen(path)
    with Client(path) as client:
        assert client.predict("echo", {"x": 1.0})["x"] == 1


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Return an authority, with a certificate for a client; beside it, one for a stranger."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder)
    authority.pair("client")
    Authority(folder, "other").pair("stranger")
    return authority


def files(authority, *names):
    return {name: str(authority.folder / file) for name, file in names}


CA = ("ca", "ca.pem")
OWN = (("certificate", "client.pem"), ("key", "client.key"))
STRANGER = (("certificate", "stranger.pem"), ("key", "stranger.key"))


def asked(port, **more) -> float:
    with Client(f"127.0.0.1:{port}", timeout=20, retries=0, **more) as client:
        return float(client.predict("echo", {"x": 1.0})["x"])


def test_tls(official, authority):
    port = official.listen(credentials=credentials(authority))
    assert asked(port, **files(authority, CA)) == 1
    assert asked(port, **files(authority, CA), server_name="localhost") == 1
    wrong = [
        ({"tls": True}, "--ca FILE.pem"),
        (files(authority, ("ca", "other.pem")), "--ca FILE.pem"),
        ({**files(authority, CA), "server_name": "another.test"}, "--server-name"),
        ({}, "--tls"),
    ]
    for each, advice in wrong:
        error = failed(asked, port, **each)
        assert (error.status, advice in str(error)) == ("UNAVAILABLE", True), (each, str(error))
    assert official.calls == ["Predict"] * 2


def test_http_to_a_port_with_tls(official, authority):
    port = official.listen(credentials=credentials(authority))
    client = RestClient(f"http://127.0.0.1:{port}", DEFAULT_CONNECTION)
    with raises(CallError, "not-an-http-server", hint=because("encrypted")):
        client.models()


def test_a_server_without_tls_is_asked_with_tls(official, authority):
    error = failed(asked, official.listen(), **files(authority, CA))
    assert shows(error, "server-unavailable", hint=because("not-encrypted"))


def test_a_certificate_that_is_over_is_refused(official, authority):
    port = official.listen(credentials=credentials(authority, days=-1))
    assert failed(asked, port, **files(authority, CA)).status == "UNAVAILABLE"
    assert official.calls == []


def test_mutual_tls(official, authority):
    port = official.listen(credentials=credentials(authority, client_verify=True))
    assert asked(port, **files(authority, CA, *OWN)) == 1
    for each in (files(authority, CA), files(authority, CA, *STRANGER)):
        error = failed(asked, port, **each)
        assert error.status == "UNAVAILABLE", each
        assert shows(error, "asks-certificate") == ("certificate" not in each)
    assert official.calls == ["Predict"]
    with pytest.raises(FileError, match=r"nothing\.pem: No such file"):
        asked(port, ca="nothing.pem")


def test_calls_come_from_several_threads(client):
    found = []

    def ask(number: int) -> None:
        found.append(int(client.predict("echo", {"x": number})["x"]) == number)

    threads = [threading.Thread(target=ask, args=[n]) for n in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [True] * 16


def test_a_client_starts_no_tensorflow():
    """No clock: what makes a start slow is what gets imported."""
    code = (
        "import sys, deploykit; deploykit.Client('localhost:1').close();"
        "sys.exit('tensorflow' in sys.modules or 'rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
