"""predict, status and load-test against a server that is not deploykit's, over gRPC and HTTP."""

import re
import time
from itertools import pairwise

import numpy as np
import pytest

import deploykit as api
from deploykit.serving.client.endpoint import CallError
from deploykit.serving.client.inference_client import InferenceClient
from deploykit.serving.client.load_generator import Generator, LoadStep
from deploykit.serving.server.tls import https_context
from deploykit.transforms.common.errors import Error, FileError, GraphError
from tests.deploykit.conftest import command_line
from tests.serving.certificates import Authority
from tests.serving.client.other_server import OtherServer
from tests.serving.served import free_port
from tests.support import Containing, raises, showing

X = np.float32([[1, 2.5], [3, -4]])
V2 = {"protocol": "v2", "retries": 0, "timeout": 20}
BOTH = pytest.mark.parametrize("transport", ["grpc", "http"])


@pytest.fixture
def started(request):
    def start(**options) -> OtherServer:
        server = OtherServer(**options)
        request.addfinalizer(server.close)
        return server

    return start


@BOTH
def test_json_and_typed_contents(started, transport):
    server = started(inputs=[("x", "FP32", [-1, 2]), ("t", "BYTES", [-1]), ("n", "INT64", [2])])
    given = {"x": X, "t": ["a", "größer"], "n": [1, 2**40]}
    found = api.predict(server.addresses[transport], "any", given, version_label="v0.1", **V2)
    assert found.outputs["x_out"].tolist() == X.tolist()
    assert found.outputs["x_out"].dtype == np.float32
    assert found.outputs["t_out"].tolist() == [b"a", "größer".encode()]
    assert found.outputs["n_out"].tolist() == [1, 2**40]
    assert found.signature == "default"
    [sent] = server.requests
    if transport == "grpc":
        assert (sent.model_version, dict(sent.parameters)) == ("v0.1", {})
    else:
        assert "parameters" not in sent
        assert sent["inputs"][0]["data"] == X.reshape(-1).tolist()


@BOTH
def test_signature_and_outputs_are_sent(started, transport):
    """A signature by name is of deploykit's server, which says what it takes in another API."""
    server = started()
    api.predict(server.addresses[transport], "any", {"x": X}, outputs=["x_out"], **V2)
    [sent] = server.requests
    named = [each.name for each in sent.outputs] if transport == "grpc" else [
        each["name"] for each in sent["outputs"]
    ]  # fmt: skip
    assert named == ["x_out"]
    with pytest.raises(CallError):
        api.predict(server.addresses[transport], "any", {"x": X}, signature="s", **V2)


@BOTH
@pytest.mark.parametrize(
    ("value", "shape"), [(2.0, (1,)), ([1, 2], (2,)), ([[1, 2], [3, 4]], (2, 2))]
)
def test_a_shape_of_minus_one_may_be_any(started, transport, value, shape):
    server = started(inputs=[("x", "FP32", [-1])])
    found = api.predict(server.addresses[transport], "any", {"x": value}, **V2)
    assert found.outputs["x_out"].shape == shape


@BOTH
def test_inputs_may_be_optional(started, transport):
    server = started(inputs=[("x", "FP32", [-1, 2]), ("more", "FP32", [-1])])
    found = api.predict(server.addresses[transport], "any", {"x": X}, **V2)
    assert list(found.outputs) == ["x_out"]


@BOTH
@pytest.mark.parametrize(
    ("versions", "shown"),
    [([], [""]), (["v0.1", "3"], ["v0.1", 3]), (["0", "007", "9" * 30], [0, "007", "9" * 30])],
    ids=str,
)
def test_versions_are_names_or_none(started, transport, versions, shown):
    server = started(versions=versions)
    ended = command_line("status", server.addresses[transport], "any", "--protocol=v2", "--json")
    assert ended.status == 0
    assert [each["version"] for each in ended.document["versions"]] == shown
    assert {each["state"] for each in ended.document["versions"]} == {"AVAILABLE"}
    [signature] = ended.document["signatures"].values()
    assert signature["inputs"]["x"] == {"name": "", "dtype": "float32", "shape": [-1, 2]}
    for each in versions:
        found = api.status(server.addresses[transport], "any", version_label=each, **V2)
        assert not found.problem


@BOTH
def test_a_server_that_is_not_ready(started, transport):
    server = started(versions=["1", "2"])
    server.ready = False
    address = server.addresses[transport]
    ended = command_line("status", address, "--protocol=v2", "--json")
    assert (ended.status, ended.document["health"], ended.document["live"]) == (
        5, "NOT_SERVING", True
    )  # fmt: skip
    ended = command_line("status", address, "any", "--protocol=v2", "--json")
    assert ended.status == 5
    assert [each["state"] for each in ended.document["versions"]] == ["NOT_READY"] * 2
    assert ended.document["signatures"] == {}
    server.ready, server.describes = True, False
    ended = command_line("status", address, "--protocol=v2")
    assert (ended.status, ended.stdout.splitlines()[0]) == (
        0, showing("server-live", address=address)
    )  # fmt: skip


@BOTH
@pytest.mark.parametrize(
    ("model", "code"),
    [("missing", "NOT_FOUND"), ("full", "RESOURCE_EXHAUSTED"), ("broken", "INTERNAL")],
)
def test_what_the_server_says_is_kept(started, transport, model, code):
    server = started()
    with pytest.raises(CallError) as raised:
        api.predict(server.addresses[transport], model, {"x": X}, **V2)
    assert raised.value.status == code
    said = "no such model" if model == "missing" else "as it was told"
    assert re.search(rf"localhost.*{said}|127.*{said}", str(raised.value))
    assert "--model_config_file" not in str(raised.value)
    with pytest.raises(CallError, match="no such model"):
        api.status(server.addresses[transport], "missing", **V2)


@BOTH
def test_a_damaged_answer(started, transport):
    with raises(CallError, "response-damaged") as raised:
        api.predict(started().addresses[transport], "damaged", {"x": X}, **V2)
    assert raised.value.status == "DATA_LOSS"


def test_bytes_over_json(started):
    server = started(inputs=[("t", "BYTES", [-1])])
    with raises(Error, "input-not-utf8"):
        api.predict(server.addresses["http"], "any", {"t": b"\xff"}, **V2)


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v2"])
def test_any_url_of_a_server(started, path):
    url = started().addresses["http"] + path
    assert api.predict(url, "any", {"x": X}, **V2).outputs["x_out"].tolist() == X.tolist()


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("load", [{"concurrency": [3]}, {"rate": 80}], ids=["closed", "open"])
def test_a_load_is_answered(started, transport, load):
    server = started()
    found = api.load_test(server.addresses[transport], "any", {"x": X}, seconds=0.5, **load, **V2)
    assert found.signature == "default"
    [step] = found.loads
    assert step.statuses.keys() == {"OK"}
    assert step.statuses["OK"] < len(server.requests)  # which also have the first and the warm-up


def taken(address: str, model: str, step: LoadStep, **connection):
    """Return what a generator measured, whose first call need not pass."""
    how = api.Connection(**{"protocol": "v2", "timeout": 20, **connection})
    with InferenceClient(address, how) as client:
        target, requests = client.load(model, [{"x": X}])
    assert address.startswith("http") or target.connection.retries == 0
    generator = Generator(target, requests)
    generator.start(step)
    while not (found := generator.so_far()).over:
        time.sleep(0.02)
    return found


STEPS = pytest.mark.parametrize(
    "step", [LoadStep(0.3, callers=2), LoadStep(0.3, rate=30)], ids=["closed", "open"]
)


@pytest.mark.sampled
@BOTH
@STEPS
@pytest.mark.parametrize(
    ("model", "code"), [("full", "RESOURCE_EXHAUSTED"), ("broken", "INTERNAL")]
)
def test_what_fails_is_counted_by_status(started, transport, step, model, code):
    server = started()
    found = taken(server.addresses[transport], model, step)
    assert set(found.statuses) == {code}
    assert found.statuses.total() == len(server.requests)


@BOTH
@STEPS
def test_a_deadline_ends_a_call(started, transport, step):
    server = started()
    server.seconds = 0.6
    found = taken(server.addresses[transport], "any", step, timeout=0.1)
    assert set(found.statuses) == {"DEADLINE_EXCEEDED"}


@STEPS
def test_a_server_that_ends_is_unavailable_and_comes_back(started, step):
    server = started()
    assert set(taken(server.addresses["http"], "any", step).statuses) == {"OK"}
    server.http.close()
    assert set(taken(server.addresses["http"], "any", step).statuses) == {"UNAVAILABLE"}


def test_connections_are_kept(started):
    """Each caller sends over one; a server that closes them is called over others."""
    server = started()
    seen: list[tuple[str, bool]] = []
    answer = server.http._answer

    def answered(request):
        seen.append((request.peer, request.keep_alive))
        return answer(request)

    server.http._answer = answered
    taken(server.addresses["http"], "any", LoadStep(0.5, callers=2))
    infer = seen[1:]  # the first asks what the server is
    assert len(infer) > 10
    assert len({peer for peer, _ in infer}) == 2
    server.http.leaving = True
    seen.clear()
    found = taken(server.addresses["http"], "any", LoadStep(0.3, callers=1))
    assert set(found.statuses) == {"OK"}
    assert len(seen) > 2
    peers = [peer for peer, _ in seen]  # among hundreds, a port may come again, but not at once
    assert all(peer != before for before, peer in pairwise(peers))


def test_over_tls(tmp_path):
    authority = Authority(tmp_path)
    authority.pair("client")
    own = {"certificate": f"{tmp_path}/client.pem", "key": f"{tmp_path}/client.key"}
    server = OtherServer(tls=https_context(authority.tls(client_verify=True)))
    try:
        url, how = server.addresses["http"], {**V2, "ca": f"{tmp_path}/ca.pem", **own}
        assert api.predict(url, "any", {"x": X}, **how).outputs["x_out"].tolist() == X.tolist()
        assert api.status(url, **how).live
        found = taken(url, "any", LoadStep(0.3, callers=2), **how)
        assert set(found.statuses) == {"OK"}
        server.http.leaving = True  # each response ends its connection
        assert set(taken(url, "any", LoadStep(0.3, callers=1), **how).statuses) == {"OK"}
        server.http.leaving = False
        with raises(CallError, "tls-certificate-refused", hint=Containing("--ca")):
            api.predict(url, "any", {"x": X}, **V2)
        with raises(CallError, "tls-certificate-refused", hint=Containing("--server-name")):
            api.predict(url, "any", {"x": X}, **how, server_name="another.test")
        with raises(CallError, "rest-status", http_status=400):
            api.predict(url.replace("https:", "http:"), "any", {"x": X}, **V2)
        assert set(taken(url, "any", LoadStep(0.3, callers=1)).statuses) == {"UNAVAILABLE"}
    finally:
        server.close()


@pytest.mark.parametrize("scheme", ["", "http://"])
def test_nothing_listens(scheme):
    address = f"{scheme}127.0.0.1:{free_port()}"
    for call in (
        lambda: api.status(address, **V2),
        lambda: api.predict(address, "m", {"x": 1}, **V2),
        lambda: api.load_test(address, "m", {"x": X}, **V2),
    ):
        with pytest.raises(CallError) as raised:
            call()
        assert raised.value.status == "UNAVAILABLE"


@pytest.mark.slow
@BOTH
def test_a_model_that_is_not_described_is_sent_what_is_given(started, transport, tmp_path):
    """As MLServer answers by default: its metadata have no inputs."""
    address = started(inputs=()).addresses[transport]
    np.save(tmp_path / "n.npy", np.int64([[1, 2]]))
    (tmp_path / "file").write_bytes(b"text")
    given = ["x=[[1, 2.5]]", f"n={tmp_path}/n.npy", f"t={tmp_path}/file"]
    found = api.predict(address, "any", given, **V2)
    assert {name: each.dtype.name for name, each in found.inputs.items()} == {
        "x": "float32", "n": "int64", "t": "object"
    }  # fmt: skip
    assert found.outputs["x_out"].tolist() == [[1, 2.5]]
    assert found.outputs["n_out"].tolist() == [[1, 2]]
    assert found.outputs["t_out"].tolist() == [b"text"]
    found = api.predict(address, "any", {"x": X, "t": ["a"]}, **V2)
    assert found.outputs.keys() == {"x_out", "t_out"}
    with raises(GraphError, "input-argument-form"):
        api.predict(address, "any", ["[1, 2]"], **V2)
    with raises(FileError, "input-file-missing"):
        api.predict(address, "any", ["x=nothing"], **V2)
    loads = api.load_test(address, "any", {"x": X}, concurrency=[1], seconds=1, **V2).loads
    assert loads[0].statuses.keys() == {"OK"}
    np.savez(tmp_path / "x.npz", x=X)
    loads = api.load_test(
        address, "any", tmp_path / "x.npz", concurrency=[1], seconds=1, **V2
    ).loads
    assert loads[0].statuses.keys() == {"OK"}
