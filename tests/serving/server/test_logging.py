"""The access log of a real server: every call that was answered, and no call that it costs."""

import json
import os
import time
import urllib.request

import grpc
import pytest

from deploykit.serving.protocol.protos import GetModelStatusRequest
from tests.serving.served import Served, free_port

CALLS = 200


@pytest.fixture(scope="module")
def arguments(tmp_path_factory):
    """Return the arguments of a server without models, which needs no TensorFlow."""
    folder = tmp_path_factory.mktemp("config")
    (folder / "models.config").write_text("model_config_list {}")
    (folder / "monitoring.config").write_text('prometheus_config { enable: true path: "/page" }')
    return [f"--model_config_file={folder}/models.config",
            f"--monitoring_config_file={folder}/monitoring.config"]  # fmt: skip


def until(condition):
    while not condition():
        time.sleep(0.01)


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
        dropped = f":deploykit:serving:access_log_dropped_lines {CALLS}\n"
        until(lambda: dropped in page(rest))
        status, said = server.end()
        assert status == 0
        assert said.count("No space left on device") == 1
    finally:
        server.kill()


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


def test_no_answered_call_is_missing_after_the_end(arguments, tmp_path):
    log = tmp_path / "log"
    server = Served(*arguments, f"--access_log={log}")
    try:
        ask(server, CALLS)
        assert server.end()[0] == 0
    finally:
        server.kill()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(each["method"], each["code"]) for each in lines] == [
        ("GetModelStatus", "NOT_FOUND")
    ] * CALLS
