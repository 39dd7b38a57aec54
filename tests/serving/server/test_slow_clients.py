"""Clients that say too little, too late or nothing at all: they end, and stand in nobody's way."""

import contextlib
import json
import socket
import threading
import urllib.request
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from deploykit.serving.protocol.protos import GetModelStatusRequest
from tests.serving.served import Served, free_port
from tests.serving.server.test_operations import HELLO, SETTINGS
from tests.serving.server.test_server import half
from tests.serving.small_models import half_plus
from tests.waiting import until

pytestmark = pytest.mark.slow

HEAD = b"POST /v1/models/half_plus_two:predict HTTP/1.1\r\nHost: h\r\nContent-Length: 99\r\n\r\n"
PREDICT = "/tensorflow.serving.PredictionService/Predict"
CHECK = "/grpc.health.v1.Health/Check"
ACKNOWLEDGED = b"\0\0\0\4\1\0\0\0\0"  # the settings of the server
TO_GRPC = (b"", HELLO, HELLO + SETTINGS, HELLO + SETTINGS + ACKNOWLEDGED)
TO_REST = (b"", HEAD[:9], HEAD[:60], HEAD, HEAD + b"{")
STATUS = GetModelStatusRequest(model_spec={"name": "half_plus_two"})


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = half_plus(tmp_path_factory.mktemp("models") / "half_plus_two", 2)
    server = Served(folder, f"--rest_api_port={free_port()}")
    yield server
    server.kill()


def ask_grpc(served):
    served.predictions.Predict(half(), timeout=5)


def ask_rest(served):
    url = f"http://127.0.0.1:{served.document['rest_api_port']}/v1/models/half_plus_two:predict"
    with urllib.request.urlopen(url, json.dumps({"instances": [2.0]}).encode(), 20) as answer:
        assert json.load(answer) == {"predictions": [3.0]}


def ask_status(served):
    served.models.GetModelStatus(STATUS, timeout=5)


def ask_health(served):
    stub = health_pb2_grpc.HealthStub(served.channel)
    stub.Check(health_pb2.HealthCheckRequest(), timeout=5)


def begun(port: int, said: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.sendall(said)
    return connection


@pytest.mark.sampled
def test_900_half_open_connections_are_closed_and_hold_nobody_up(served):
    ports = [(served.document["port"], said) for said in TO_GRPC]
    ports += [(served.document["rest_api_port"], said) for said in TO_REST]
    with contextlib.ExitStack() as stack:
        half_open = [
            stack.enter_context(begun(port, said)) for port, said in ports for _ in range(100)
        ]
        for _ in range(20):
            ask_grpc(served)
            ask_rest(served)
        for each in half_open:
            with contextlib.suppress(ConnectionError):
                while each.recv(1 << 16):
                    pass


def answered(ask, served) -> bool:
    try:
        ask(served)
    except grpc.RpcError:
        return False
    return True


@contextlib.contextmanager
def stalled(served, method: str, count: int) -> Iterator[list[grpc.Future]]:
    """Begin calls over a connection that answers pings, without ever sending their requests."""
    end = threading.Event()

    def requests():
        end.wait()
        yield from ()

    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(served.address, options) as channel:
        try:
            yield [channel.stream_unary(method).future(requests()) for _ in range(count)]
        finally:
            end.set()


@pytest.mark.parametrize(
    ("method", "ask"),
    [
        (PREDICT, ask_grpc),
        ("/inference.GRPCInferenceService/ModelInfer", ask_grpc),
        ("/inference.GRPCInferenceService/ServerReady", ask_health),
        ("/tensorflow.serving.ModelService/GetModelStatus", ask_status),
        (CHECK, ask_health),
    ],
)
def test_calls_whose_request_never_comes_make_room_for_others(served, method, ask):
    with stalled(served, method, 300) as calls:
        # One is refused once there is no thread left; nobody is answered until others have to go.
        until(lambda: any(call.done() for call in calls))
        until(lambda: answered(ask, served))


@pytest.mark.sampled
def test_a_call_whose_request_never_comes_does_not_hold_up_the_end(tmp_path):
    config = tmp_path / "models.config"
    config.write_text("model_config_list {}")
    server = Served(f"--model_config_file={config}", "--drain_seconds=600")
    try:
        with stalled(server, PREDICT, 1) as predicts, stalled(server, CHECK, 1) as checks:
            threading.Event().wait(11)  # longer than the server has patience
            assert not any(call.done() for call in predicts + checks)
            status, _ = server.end()
        assert status == 0
    finally:
        server.kill()
