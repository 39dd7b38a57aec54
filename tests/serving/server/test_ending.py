"""The end of a server: who is told, who is answered, who is refused, and that nobody is lost."""

import http.client
import signal
import threading
import time
from contextlib import ExitStack, closing

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from deploykit.serving.protocol.protos import GetModelStatusRequest
from deploykit.serving.server import shutdown
from deploykit.serving.server.server import Server
from deploykit.serving.server.settings import ServerSettings
from tests.serving.certificates import Authority
from tests.serving.served import Served, free_port
from tests.serving.server.callers import Callers
from tests.serving.server.test_server import count, half
from tests.serving.server.test_slow_clients import CHECK, HEAD, PREDICT, begun, stalled
from tests.serving.slow_model import slow
from tests.serving.small_models import half_plus
from tests.support import shows

CALLED = 0.3  # seconds in which callers call before the end
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """Return the argument of a server without models, which needs no TensorFlow."""
    config = tmp_path_factory.mktemp("config") / "models.config"
    config.write_text("model_config_list {}")
    return f"--model_config_file={config}"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    base = tmp_path_factory.mktemp("models")
    half_plus(base / "half_plus_two", 2)
    slow(base / "slow")
    return base


def ended_among(callers, server, host, authority="") -> set[str]:
    """Return what callers see of the end of a server."""
    with ExitStack() as stack:
        calling = Callers(callers, host, authority)
        stack.callback(calling.kill)
        time.sleep(CALLED)
        status, said = server.end()
        assert status == 0, said
        return set(calling.end())


@pytest.mark.sampled
@pytest.mark.parametrize(
    "flags",
    [
        pytest.param([], marks=pytest.mark.slow),
        ["--lame_duck_seconds=0.2", "--drain_seconds=0.5"],
        pytest.param(["--workers=2"], marks=pytest.mark.slow),
    ],
)
def test_callers_that_know_of_nothing_are_answered_or_may_call_again(empty, flags):
    server = Served(empty, *flags)
    try:
        found = ended_among("status", server, server.address)
        assert found == {"NOT_FOUND", "UNAVAILABLE"}
    finally:
        server.kill()


@pytest.mark.sampled
def test_callers_of_rest_are_answered_or_refused(empty):
    port = free_port()
    server = Served(empty, f"--rest_api_port={port}")
    try:
        found = ended_among("rest", server, f"127.0.0.1:{port}")
        assert {"404", "closed"} <= found <= {"404", "503", "closed"}
    finally:
        server.kill()


@pytest.mark.slow
def test_a_server_in_a_process_that_goes_on_ends_likewise():
    for _ in range(3):
        server = Server(ServerSettings([], port=0))
        server.start()
        calling = Callers("status", f"127.0.0.1:{server.port}")
        try:
            time.sleep(CALLED)
            assert server.drain(30)
            assert set(calling.end()) == {"NOT_FOUND", "UNAVAILABLE"}
        finally:
            calling.kill()


def test_a_lame_duck_answers_while_health_says_that_it_ends(empty):
    port = free_port()
    server = Served(empty, "--lame_duck_seconds=600", f"--rest_api_port={port}")
    try:
        health = health_pb2_grpc.HealthStub(server.channel)
        watched = health.Watch(health_pb2.HealthCheckRequest())
        assert next(watched).status != NOT_SERVING
        rest = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        for closes in (False, True):
            rest.request("GET", "/v1/models")
            response = rest.getresponse()
            assert (response.status, response.will_close) == (200, closes)
            response.read()
            if not closes:
                server.process.send_signal(signal.SIGTERM)
                assert next(watched).status == NOT_SERVING
                assert health.Check(health_pb2.HealthCheckRequest()).status == NOT_SERVING
                while not shows(server.said, "health-ending"):
                    time.sleep(0.01)
        request = GetModelStatusRequest()
        request.model_spec.name = "nobody"
        new = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(server.address, new) as server.channel:
            call = server.models.GetModelStatus.future(request, timeout=30)
            assert call.code() is grpc.StatusCode.NOT_FOUND
        assert server.end() == (128 + signal.SIGTERM, server.said)  # the second one
    finally:
        server.kill()


@pytest.mark.sampled
def test_nobody_who_is_only_there_holds_up_the_end(empty):
    port = free_port()
    server = Served(empty, "--lame_duck_seconds=0.1", "--drain_seconds=600",
                    f"--rest_api_port={port}")  # fmt: skip
    over = threading.Event()

    def one_question():
        over.wait()
        yield b""

    try:
        with ExitStack() as stack:
            stack.callback(over.set)
            stack.enter_context(stalled(server, PREDICT, 3))
            stack.enter_context(stalled(server, CHECK, 3))
            stub = health_pb2_grpc.HealthStub(server.channel)
            watched = stub.Watch(health_pb2.HealthCheckRequest())
            next(watched)
            for said in (b"", HEAD[:9], HEAD, HEAD + b"{"):
                stack.enter_context(closing(begun(port, said)))
            reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
            for _ in range(5):
                server.channel.stream_stream(reflection)(one_question())
            assert server.end()[0] == 0
    finally:
        server.kill()


class Port:
    closing = False
    arriving = 0

    def __init__(self, *in_flight: int) -> None:
        self._counts = list(in_flight)
        self.looks = 0

    @property
    def in_flight(self) -> int:
        self.looks += 1
        return self._counts.pop(0) if self._counts else 0

    @property
    def last_began(self) -> float:
        self.looks += 1
        return time.monotonic() if self.looks < 40 else 0.0


def test_it_goes_on_while_calls_come():
    port = Port()
    shutdown.go_on([port], 0, 600)
    assert port.looks == 40
    shutdown.go_on([Port()], 0, 0)  # and no longer than it may


@pytest.mark.sampled
def test_it_refuses_until_all_are_answered():
    for port, answered in ((Port(2, 1, 0, 1), True), (Port(*[1] * 1000), False)):
        end = time.monotonic() + (600 if answered else 0.3)
        assert shutdown.refuse_and_answer([Port(), port], end) == answered
        assert port.closing


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--workers=2"], ["--lame_duck_seconds=0.5"]])
def test_calls_just_sent_are_answered_or_refused(models, flags):
    for turn in (0, 2):
        server = Served(models, *flags)
        try:
            predict = server.predictions.Predict
            predict(count(10), timeout=60)
            calls = [predict.future(count(600), timeout=60) for _ in range(20)]
            time.sleep(turn / 100)
            status, said = server.end()
            assert status == 0, said
            assert {call.code().name for call in calls} <= {"OK", "UNAVAILABLE"}
        finally:
            server.kill()


@pytest.mark.sampled
def test_callers_of_models_with_tls_and_without(models, tmp_path):
    authority = Authority(tmp_path)
    tls, config = authority.tls(), tmp_path / "ssl.config"
    config.write_text(f"server_key: {tls.server_key!r}\nserver_cert: {tls.server_cert!r}\n")
    trusted = tmp_path / "authority.pem"
    trusted.write_text(authority.certificate)
    for flags, certificate in (([], ""), ([f"--ssl_config_file={config}"], str(trusted))):
        server = Served(models, "--lame_duck_seconds=0.5", "--drain_seconds=2", *flags)
        try:
            found = ended_among("predict", server, server.address, certificate)
            assert found == {"OK", "UNAVAILABLE"}
        finally:
            server.kill()


@pytest.mark.slow
def test_an_answer_that_a_slow_reader_has_not_read_arrives(models):
    """Of a call that computes for longer than others are refused."""
    server = Served(models)
    try:
        call = server.predictions.Predict.future(count(20_000), timeout=60)
        server.predictions.Predict(half(), timeout=60)  # sent later, so the other one computes
        assert server.end()[0] == 0
        assert call.result().outputs["y"].int_val[0] == 20_000
    finally:
        server.kill()
