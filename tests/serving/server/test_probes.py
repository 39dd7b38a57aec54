"""What load balancers ask over REST: ready or not, from the first version to the end."""

import contextlib
import http.client
import json
import signal
import time
from contextlib import closing

import grpc
import pytest

from tests.serving.infer_callers import ask as infer_ask
from tests.serving.served import Served, free_port
from tests.serving.small_models import half_plus
from tests.waiting import until

PATHS = ["/healthz", "/readyz", "/health", "/ping", "/", "/healthz?verbose"]


def ask(server, path, method="GET", body=None):
    """Return the status and the body of an answer."""
    port = server.document["rest_api_port"]
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.read()


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return half_plus(tmp_path_factory.mktemp("models") / "half_plus_two", 2)


@pytest.fixture
def start(request):
    def started(*arguments):
        server = Served(*arguments, f"--rest_api_port={free_port()}")
        request.addfinalizer(server.kill)
        return server

    return started


@pytest.mark.sampled
def test_a_server_without_a_version_is_not_ready(start, tmp_path):
    server = start(f"--model_base_path={tmp_path}", "--model_name=m")
    for path in PATHS:
        assert ask(server, path) == (503, b'{"status":"NOT_SERVING"}'), path
        assert ask(server, path, "HEAD") == (503, b""), path
        assert ask(server, path, "POST", "{}")[0] in (400, 404), path
    assert ask(server, "/v2/health/ready") == (503, b'{"ready":false}')
    assert ask(server, "/v2/health/live") == (200, b'{"live":true}')
    assert ask(server, "/v2/health/live", "HEAD") == (200, b"")


@pytest.mark.slow
def test_it_is_ready_from_the_first_version_until_it_is_told_to_end(start, base, tmp_path):
    served = tmp_path / "half_plus_two"
    served.mkdir()
    server = start(f"--model_base_path={served}", "--model_name=half_plus_two",
                   "--file_system_poll_wait_seconds=0.1", "--lame_duck_seconds=3")  # fmt: skip
    assert ask(server, "/healthz")[0] == 503
    (base / "00000123").rename(served / "00000123")
    until(lambda: ask(server, "/healthz")[0] == 200)
    until(lambda: "serving half_plus_two: 123\n" in server.said)
    (half_plus(base, 3, version=124) / "00000124").rename(served / "00000124")
    until(lambda: "serving half_plus_two: 124\n" in server.said)
    for path in PATHS:
        assert ask(server, path) == (200, b'{"status":"SERVING"}')
        assert ask(server, path, "HEAD") == (200, b"")
    server.process.send_signal(signal.SIGTERM)
    until(lambda: ask(server, "/healthz") == (503, b'{"status":"NOT_SERVING"}'))
    status, answer = ask(server, "/v1/models/half_plus_two:predict", "POST", '{"inputs": [2.0]}')
    assert (status, json.loads(answer)) == (200, {"outputs": [4.0]})
    try:
        while True:  # probes are no calls: they do not keep the server from its end
            assert ask(server, "/healthz")[0] == 503
            assert ask(server, "/v2/health/ready")[0] == 503
            with contextlib.suppress(grpc.RpcError):  # it ends a little before REST
                assert not infer_ask(server, "ServerReady").ready
            time.sleep(0.05)
    except OSError:
        pass
    assert server.ended()[0] == 0
