"""The access log of a real server: every call that was answered, and no call that it costs."""

import json
import os
import signal
import socket
import time
import urllib.request

import grpc
import pytest

from deploykit.serving.protocol.protos import GetModelStatusRequest
from tests.serving.served import Served, free_port
from tests.waiting import until

CALLS = 200
ALONE = [("grpc.use_local_subchannel_pool", 1)]


@pytest.fixture(scope="module")
def arguments(tmp_path_factory):
    """Return the arguments of a server without models, which needs no TensorFlow."""
    folder = tmp_path_factory.mktemp("config")
    (folder / "models.config").write_text("model_config_list {}")
    (folder / "monitoring.config").write_text('prometheus_config { enable: true path: "/page" }')
    return [f"--model_config_file={folder}/models.config",
            f"--monitoring_config_file={folder}/monitoring.config"]  # fmt: skip


def ask(server, count=1):
    """Call so often; each is answered with what it should be."""
    request = GetModelStatusRequest()
    request.model_spec.name = "nobody"
    for _ in range(count):
        with pytest.raises(grpc.RpcError) as error:
            server.models.GetModelStatus(request, timeout=20)
        assert error.value.code() is grpc.StatusCode.NOT_FOUND


def page(port) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/page", timeout=30) as answer:
        return answer.read().decode()


def test_a_full_disk_costs_no_call_and_is_said_once(arguments):
    rest = free_port()
    server = Served(*arguments, "--access_log=/dev/full", f"--rest_api_port={rest}")
    try:
        ask(server, CALLS)
        name = ":deploykit:serving:access_log_dropped_lines "
        until(lambda: int(page(rest).split(name)[-1]) >= CALLS)
        status, said = server.end()
        assert status == 0
        assert said.count("No space left on device") == 1
    finally:
        server.kill()


@pytest.mark.slow
def test_a_reader_that_stalls_holds_up_neither_calls_nor_the_end(arguments, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    server = Served(*arguments, f"--access_log={pipe}")
    try:
        ask(server, 5 * CALLS)  # far more than a pipe holds
        status, said = server.end()
        assert status == 0, said
    finally:
        server.kill()
        os.close(reader)


@pytest.mark.sampled
def test_no_answered_call_is_missing_after_the_end(arguments, tmp_path):
    log = tmp_path / "log"
    server = Served(*arguments, f"--access_log={log}")
    try:
        ask(server, CALLS)
        assert server.end()[0] == 0
    finally:
        server.kill()
    assert [(each["method"], each["code"]) for each in lines(log)] == [
        ("GetModelStatus", "NOT_FOUND")
    ] * CALLS


def lines(log) -> list[dict]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def rest(port, request: bytes) -> None:
    """Send bytes, and wait for the answer to them."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(request)
        assert client.recv(1 << 16)


def test_calls_by_rest_are_logged_and_those_that_reach_no_method(arguments, tmp_path):
    log, port = tmp_path / "log", free_port()
    server = Served(
        *arguments, f"--access_log={log}", f"--rest_api_port={port}", "--max_message_mb=1"
    )
    asks = [
        (b"GET /v1/models/m HTTP/1.0\r\n\r\n", "GetModelStatus", "m", "NOT_FOUND", 0),
        (b"GET /v1/models/m/metadata HTTP/1.0\r\n\r\n", "GetModelMetadata", "m", "NOT_FOUND", 0),
        (b"POST /v1/models/m:predict HTTP/1.0\r\nContent-Length: 20\r\n\r\n"
         b'{"instances": [1.0]}', "Predict", "m", "NOT_FOUND", 20),
        (b"POST /v1/models/m:predict HTTP/1.0\r\nContent-Length: 1\r\n\r\n{",
         "Predict", "m", "INVALID_ARGUMENT", 1),
        (b"GET /v1/models HTTP/1.0\r\n\r\n", "GET", "", "OK", 0),
        (b"GET /page HTTP/1.0\r\n\r\n", "GET", "", "OK", 0),
        (b"GET /nowhere HTTP/1.0\r\n\r\n", "GET", "", "NOT_FOUND", 0),
        (b"GET /v1/models/%s HTTP/1.0\r\n\r\n" % (b"m" * 300), "GET", "", "INVALID_ARGUMENT", 0),
        (b"garbage\r\n\r\n", "", "", "INVALID_ARGUMENT", None),
        (b"POST /v1/models/m:predict HTTP/1.0\r\nContent-Length: 9999999\r\n\r\n",
         "", "", "RESOURCE_EXHAUSTED", None),
    ]  # fmt: skip
    try:
        for request, *_ in asks:
            rest(port, request)
        ask(server)
        assert server.end()[0] == 0
    finally:
        server.kill()
    *found, last = lines(log)
    assert last["protocol"] == "grpc"
    assert last.keys() == found[0].keys()
    assert [
        (each["method"], each["model"], each["code"], each.get("bytes_in")) for each in found
    ] == [tuple(expected) for _, *expected in asks]
    assert all(each["protocol"] == "rest" for each in found)
    assert all(each["peer"].startswith("ipv4:127.0.0.1:") for each in found)


@pytest.mark.sampled
def test_a_log_that_was_moved_away_is_begun_anew(arguments, tmp_path):
    log, old = tmp_path / "log", tmp_path / "log.1"
    server = Served(*arguments, f"--access_log={log}", "--workers=2")
    try:
        ask(server)
        until(lambda: lines(log))
        log.rename(old)
        while not (log.exists() and log.stat().st_size):
            with grpc.insecure_channel(server.address, ALONE) as server.channel:
                ask(server)
            time.sleep(0.1)
        assert server.end()[0] == 0
    finally:
        server.kill()
    assert {each["code"] for each in lines(log)} == {"NOT_FOUND"}
    assert lines(old)


@pytest.mark.sampled
def test_without_a_log_a_hangup_changes_nothing(arguments):
    server = Served(*arguments)
    try:
        for _ in range(3):
            server.process.send_signal(signal.SIGHUP)
            ask(server, 10)
        assert server.end()[0] == 0
    finally:
        server.kill()
