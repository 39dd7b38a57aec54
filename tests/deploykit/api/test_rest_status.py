"""`deploykit status` of a URL: all models of a server, and what is wrong where there are none."""

import json
import socket
import threading
from contextlib import contextmanager

import grpc
import pytest

import deploykit as api
from deploykit.serving.client.endpoint import CallError
from deploykit.serving.rest.listener import Listener, Response
from deploykit.serving.server.tls import https_context
from deploykit.transforms.common.errors import Error
from tests.serving.certificates import Authority
from tests.serving.served import free_port
from tests.serving.small_models import half_plus
from tests.support import raises, showing, shows

QUICK = {"retries": 0, "timeout": 20}
VERSIONS = {"model_version_status": [
    {"version": "7", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}},
    {"version": "3", "state": "END", "status": {"error_code": "ABORTED", "error_message": "x"}},
]}  # fmt: skip


@contextmanager
def rest(answers: dict[str, tuple[int, object]], tls=None):
    """Serve documents, or bytes, by paths; yield the port."""

    def answer(request) -> Response:
        status, body = answers.get(request.target, (404, {"error": f"no {request.target}"}))
        return Response(status, body if isinstance(body, bytes) else json.dumps(body).encode())

    listener = Listener(answer, tls=tls)
    listener.start()
    try:
        yield listener.port
    finally:
        listener.close()


@contextmanager
def saying(*parts: bytes, pause: float = 0.0):
    """Answer each connection with bytes, one part after the other, and stay; yield the port."""
    ended = threading.Event()

    def serve(connected: socket.socket) -> None:
        with connected:
            for part in parts:
                try:
                    connected.sendall(part)
                except OSError:
                    return
                ended.wait(pause)
            ended.wait(60)

    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connected, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connected,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield server.getsockname()[1]
        finally:
            ended.set()
            server.shutdown(socket.SHUT_RDWR)


def test_all_models_of_a_server(deploykit, tmp_path):
    base = half_plus(tmp_path / "half_plus_two", 2)
    (tmp_path / "broken" / "1").mkdir(parents=True)
    (tmp_path / "broken" / "1" / "saved_model.pb").write_bytes(b"nonsense")
    config = tmp_path / "models.config"
    folders = {"half": base, "a b/c": base, "broken": tmp_path / "broken"}
    models = "".join(
        f'config {{name: "{name}" base_path: "{folder}" model_platform: "tensorflow"}}'
        for name, folder in folders.items()
    )
    config.write_text(f"model_config_list {{{models}}}")
    port = free_port()
    with api.serve(model_config_file=config, port=0, rest_api_port=port) as server:
        url = f"http://127.0.0.1:{port}"
        table, document = deploykit("status", url), deploykit("status", url, "--json")
        one = deploykit("status", url, "half", "--json").document
        over_grpc = deploykit("status", server.address, "half", "--json").document
        health = deploykit("status", server.address)
        assert api.status(server.rest_url, **QUICK).models.keys() == {"half", "a b/c", "broken"}
        missing = deploykit("status", url, "nobody")
    assert table.status == document.status == 5
    assert shows(
        table.stderr, "server-not-serving", reason=showing("no-version-available", models="broken")
    )
    rows = {tuple(line.strip().rsplit(maxsplit=2)) for line in table.stdout.splitlines()}
    expected = {("model", "version", "state"), ("half", "123", "AVAILABLE")}
    assert expected | {("a b/c", "123", "AVAILABLE")} <= rows
    assert ("broken", "1") in {row[:2] for row in rows}, "it is loaded again and again"
    found = {each["model"]: each["versions"] for each in document.document["models"]}
    assert found["half"] == found["a b/c"] == one["versions"] == over_grpc["versions"]
    assert found["broken"][0]["code"] != "OK"
    assert one["signatures"] == over_grpc["signatures"] != {}
    assert "deploykit status http://HOST:REST_PORT" in health.stdout
    assert (missing.status, missing.stderr.count("\n")) == (2, 1)
    assert "nobody" in missing.stderr


def test_versions_of_any_server():
    with rest(
        {"/v1/models": (200, {"models": ["x", "empty"]}), "/v1/models/x": (200, VERSIONS)}
    ) as port:
        found = api.status(f"http://127.0.0.1:{port}/", **QUICK)
    assert [(each.version, each.state, each.code, each.message) for each in found.models["x"]] == [
        (7, "AVAILABLE", "OK", ""), (3, "END", "ABORTED", "x")
    ]  # fmt: skip
    assert found.models["empty"] == []
    assert shows(found.problem, "no-version-available", models="empty")


@pytest.mark.parametrize("status", [400, 404])
@pytest.mark.parametrize("page", [{"error": "GET /v1/models"}, b"<html>"], ids=str)
def test_tensorflow_serving_lists_no_models(deploykit, status, page):
    with rest({"/v1/models": (status, page)}) as port:
        ended = deploykit("status", f"http://127.0.0.1:{port}")
    assert ended.status == 2
    assert shows(ended.stderr, "rest-no-list")


ODD = {
    "html": (200, b"<html>hello</html>"),
    "list": (200, []),
    "names": (200, {"models": 3}),
    "numbers": (200, {"models": [1]}),
    "deep": (200, b"[" * 100_000),
    "binary": (200, b"\xff\xfe\x00"),
    "failed": (500, b"oops"),
    "refused": (403, {"error": "not\nfor you"}),
}


@pytest.mark.parametrize("page", ODD.values(), ids=ODD)
def test_another_page_is_a_sentence(deploykit, page):
    with rest({"/v1/models": page}) as port:
        ended = deploykit("status", f"http://127.0.0.1:{port}")
    assert (ended.status, ended.printed) == (2, "")
    assert ended.stderr.startswith(f"deploykit: error: http://127.0.0.1:{port}: ")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("found", [
    {"model_version_status": 5}, {"model_version_status": [{}]}, {"model_version_status": ["x"]},
    {"model_version_status": [{"version": "x", "state": "END"}]}, {}, [],
    {"model_version_status": [{"version": "1", "state": "END", "status": "bad"}]},
], ids=str)  # fmt: skip
def test_odd_versions_are_a_sentence(found):
    code = "response-without" if "model_version_status" in found else "response-without-field"
    with (
        rest({"/v1/models/x": (200, found)}) as port,
        raises(CallError, code),
    ):
        api.status(f"http://127.0.0.1:{port}", "x", **QUICK)


def test_a_closed_port(deploykit):
    ended = deploykit("status", f"http://127.0.0.1:{free_port()}")
    assert ended.status == 2
    assert shows(ended.stderr, "server-unreachable", reason="Connection refused")


def test_a_server_that_is_ready_soon_is_asked_again():
    answers = {"/v1/models": (503, {"error": "not yet"})}
    with rest(answers) as port:
        with raises(CallError, "rest-status", reason="not yet"):
            api.status(f"http://127.0.0.1:{port}", **QUICK)
        threading.Timer(0.1, answers.update, [{"/v1/models": (200, {"models": []})}]).start()
        assert api.status(f"http://127.0.0.1:{port}", retries=4).models == {}


@pytest.mark.parametrize(
    ("scheme", "codes"),
    [("http", {"not-an-http-server"}), ("https", {"not-an-http-server", "tls-failed"})],
)
def test_a_port_of_grpc(official_port, scheme, codes):
    with pytest.raises(CallError) as raised:
        api.status(f"{scheme}://127.0.0.1:{official_port}", **QUICK)
    assert raised.value.code in codes
    assert raised.value.code == "tls-failed" or "gRPC" in raised.value.fields["hint"]
    assert "\n" not in str(raised.value)


@pytest.fixture
def official_port():
    from concurrent.futures import ThreadPoolExecutor

    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    server.stop(None).wait()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("parts", [
    [], [b"HTTP/1.1 200 OK\r\n"],
    [b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n[", *[b" "] * 600],
    [b"HTTP/1.1 200 OK\r\nX: ", *[b"y"] * 600], [b"HTTP/1.1 200 OK\r\n\r\n", *[b" "] * 600],
], ids=["nothing", "status", "slow body", "slow header", "endless"])  # fmt: skip
def test_a_server_that_hangs(deploykit, parts, scheme):
    with saying(*parts, pause=0.1) as port:
        url = f"{scheme}://127.0.0.1:{port}"
        ended = deploykit("status", url, "--timeout", 1)
    if scheme == "http" or not parts:
        assert ended.status == 6
        assert shows(ended.stderr, "rest-timeout", seconds="1 seconds")
    else:
        assert ended.status == 2
        assert "TLS failed" in ended.stderr


@pytest.mark.parametrize("url", [
    "http://", "http://:1", "http:localhost", "http://h:0", "http://h:65536", "http://h:x",
    "http://h/page", "http://h?x=1", "http://u:p@h:1", "http://h\n", "http://[::1", "http://h:1#f",
])  # fmt: skip
def test_what_is_not_a_url_of_a_server(url):
    with raises(Error, "server-url"):
        api.status(url, **QUICK)


def test_options_of_tls_go_with_https():
    with raises(Error, "tls-needs-https"):
        api.status("http://127.0.0.1:1", tls=True)


def test_over_tls_with_a_certificate_of_the_client(deploykit, tmp_path):
    authority = Authority(tmp_path)
    ca = tmp_path / "ca.pem"
    key, certificate = (tmp_path / f"client.{end}" for end in ("key", "pem"))
    authority.pair("client")
    tls = https_context(authority.tls(client_verify=True))
    with rest({"/v1/models": (200, {"models": []})}, tls) as port:
        url = f"https://localhost:{port}"
        own = ["--certificate", certificate, "--key", key]
        assert deploykit("status", url, "--ca", ca, *own).status == 0
        named = ["--server-name", "127.0.0.1"]
        assert deploykit("status", url, "--ca", ca, *own, *named).status == 0
        for less in ([], ["--ca", ca], own, ["--ca", ca, *own, "--server-name", "other"]):
            ended = deploykit("status", url, *less)
            assert (ended.status, ended.stderr.count("\n")) == (2, 1)
        plain = deploykit("status", f"http://localhost:{port}")
        assert (plain.status, plain.stderr.count("\n")) == (2, 1)
        damaged = deploykit("status", url, "--ca", tmp_path / "no.pem")
        assert (damaged.status, damaged.stderr.count("\n")) == (4, 1)
        swapped = deploykit("status", url, "--ca", ca, "--certificate", key, "--key", certificate)
        assert (swapped.status, swapped.stderr.count("\n")) == (4, 1)
