"""No worker is ready: clients hear that, instead of a refused connection."""

import http.client
import json
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import psutil
import pytest

from deploykit.serving.protocol.protos import GetModelStatusRequest
from deploykit.serving.rest.listener import Listener, Response
from deploykit.serving.server.settings import ServerSettings
from deploykit.serving.server.standby import Standby
from deploykit.transforms.common.errors import CodedError
from tests.serving.certificates import Authority
from tests.serving.official_stubs import ModelServiceStub
from tests.serving.served import Served, free_port
from tests.serving.server.test_workers import ALONE, workers
from tests.waiting import until

OK = Response(200, b"{}")


@pytest.fixture
def standby():
    settings = ServerSettings((), port=free_port(), rest_api_port=free_port(), workers=2)
    with Standby(settings) as made:
        made.settings = settings
        yield made


def worker(settings: ServerSettings) -> Listener:
    made = Listener(lambda _: OK, settings.host, settings.rest_api_port, reuse_port=True)
    made.start()
    return made


def asked(port: int, body: bytes | None = None) -> tuple[int, str | None, object]:
    """Ask on a new connection; return status, Retry-After and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET" if body is None else "POST", "/v1/models", body)
        response = connection.getresponse()
        return response.status, response.getheader("Retry-After"), json.loads(response.read())
    finally:
        connection.close()


def code(port: int) -> grpc.StatusCode:
    """Ask on a new connection; a worker says NOT_FOUND."""
    with grpc.insecure_channel(f"127.0.0.1:{port}", ALONE) as channel:
        return code_over(channel)


def code_over(channel: grpc.Channel) -> grpc.StatusCode:
    request = GetModelStatusRequest()
    request.model_spec.name = "nobody"
    return ModelServiceStub(channel).GetModelStatus.future(request, timeout=30).code()


@pytest.mark.parametrize("body", [None, b"[]", b" " * (8 << 20)], ids=["get", "post", "large"])
def test_no_worker_is_said_over_both_protocols(standby, body):
    status, retry, said = asked(standby.settings.rest_api_port, body)
    assert (status, retry) == (503, "1")
    assert said == {"error": str(CodedError("no-worker-ready"))}
    assert code(standby.settings.port) == grpc.StatusCode.UNAVAILABLE


def test_workers_get_every_connection_while_one_is_ready(standby):
    port = standby.settings.rest_api_port
    first = worker(standby.settings)
    assert {asked(port)[0] for _ in range(20)} == {503}, "it is not ready yet"
    standby.count(1)
    assert {asked(port)[0] for _ in range(40)} == {200}
    second = worker(standby.settings)
    standby.count(1)
    assert {asked(port)[0] for _ in range(40)} == {200}
    first.close()
    standby.count(-1)
    assert {asked(port)[0] for _ in range(40)} == {200}, "the other one is left"
    second.close()
    assert {asked(port)[0] for _ in range(10)} == {503}, "before the parent knows that it died"
    standby.count(-1)
    assert {asked(port)[0] for _ in range(10)} == {503}


def test_no_worker_is_said_over_tls(tmp_path):
    authority = Authority(tmp_path)
    tls = authority.tls()
    trusted = grpc.ssl_channel_credentials(authority.certificate.encode())
    settings = ServerSettings((), port=free_port(), rest_api_port=free_port(), workers=2, tls=tls)
    with Standby(settings):
        with grpc.secure_channel(f"localhost:{settings.port}", trusted, ALONE) as channel:
            call = code_over(channel)
        context = ssl.create_default_context(cadata=authority.certificate)
        connection = http.client.HTTPSConnection(
            "localhost", settings.rest_api_port, context=context, timeout=30
        )
        connection.request("GET", "/v1/models")
        assert connection.getresponse().status == 503
        connection.close()
    assert call == grpc.StatusCode.UNAVAILABLE


def test_a_client_that_stays_connected_comes_to_a_worker(standby):
    port = standby.settings.port
    with grpc.insecure_channel(f"127.0.0.1:{port}", ALONE) as channel:
        assert code_over(channel) == grpc.StatusCode.UNAVAILABLE
        server = grpc.server(ThreadPoolExecutor(1), options=[("grpc.so_reuseport", 1)])
        server.add_insecure_port(f"127.0.0.1:{port}")
        server.start()
        standby.count(1)
        try:
            until(lambda: code_over(channel) == grpc.StatusCode.UNIMPLEMENTED)
            assert {code_over(channel) for _ in range(5)} == {grpc.StatusCode.UNIMPLEMENTED}
        finally:
            server.stop(None).wait()


def test_a_system_without_the_filter_does_not_stand_by(monkeypatch):
    monkeypatch.setattr("deploykit.serving.server.standby._ATTACH_FILTER", 9999)
    settings = ServerSettings((), port=free_port(), rest_api_port=free_port(), workers=2)
    with Standby(settings) as made:
        made.count(1)
        with pytest.raises(ConnectionRefusedError):
            asked(settings.rest_api_port)


@pytest.mark.slow
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_killed_workers_refuse_no_connection(tmp_path, host):
    config = tmp_path / "models.config"
    config.write_text("model_config_list {}")
    server = Served(f"--model_config_file={config}", "--workers=2", f"--host={host}",
                    f"--rest_api_port={free_port()}")  # fmt: skip
    port, rest = server.document["port"], server.document["rest_api_port"]
    heard: list[object] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            try:
                heard.append(asked(rest)[0])
            except ConnectionRefusedError as error:
                heard.append(error)
            except (ConnectionError, http.client.HTTPException):
                pass  # its worker was killed while it answered

    clients = [threading.Thread(target=ask) for _ in range(2)]
    try:
        for each in clients:
            each.start()
        for _ in range(4):
            killed = workers(server)
            for each in killed:
                each.kill()
            psutil.wait_procs(killed)
            said = {code(port) for _ in range(5)}
            assert said <= {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE}
            until(lambda killed=killed: len({*workers(server)} - {*killed}) == 2)
        until(lambda: code(port) == grpc.StatusCode.NOT_FOUND)
        until(lambda: asked(rest)[0] == 200)
        done.set()
        for each in clients:
            each.join()
        assert set(heard) == {200, 503}
        assert {asked(rest)[0] for _ in range(30)} == {200}
        assert {code(port) for _ in range(30)} == {grpc.StatusCode.NOT_FOUND}
        status, said = server.end()
        assert status == 0, said
    finally:
        done.set()
        server.kill()
