"""Several processes on one port: all drained, dead ones replaced, none left behind."""

import os
import pickle
import subprocess
import sys
import time
import urllib.error
import urllib.request

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from deploykit.serving.protocol.protos import GetModelStatusRequest
from deploykit.serving.server.settings import ServerSettings
from tests.serving.infer_callers import ask
from tests.serving.served import Served, free_port
from tests.serving.server.test_server import half
from tests.serving.small_models import half_plus
from tests.support import Containing, lines_with, shows
from tests.waiting import until

ALONE = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return half_plus(tmp_path_factory.mktemp("models") / "half_plus_two", 2)


def workers(server: Served) -> list[psutil.Process]:
    return psutil.Process(server.process.pid).children()


def answer(server: Served) -> float:
    """Ask on a connection of its own, which any of the workers may get."""
    with grpc.insecure_channel(server.address, ALONE) as channel:
        server.channel = channel
        assert ask(server, "ServerReady").ready
        response = server.predictions.Predict(half(), timeout=30, wait_for_ready=True)
        return response.outputs["y"].float_val[0]


@pytest.mark.slow
def test_workers(base):
    server = Served(base, "--workers=2")
    try:
        first = workers(server)
        assert len(first) == 2
        assert {answer(server) for _ in range(8)} == {3.0}
        first[0].kill()
        first[0].wait(30)
        while len(workers(server)) < 2 or first[0] in workers(server):
            assert answer(server) == 3.0  # the other one goes on
        started = [each for each in workers(server) if each not in first]
        assert len(started) == 1
        status, said = server.end()
        assert status == 0, said
        assert shows(said, "worker-replaced", how="SIGKILL")
        assert not any(each.is_running() for each in (*first, *started))
    finally:
        server.kill()


def readiness(port: int) -> int | None:
    """Return the status of the readiness probe; None: no worker listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=30) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


@pytest.mark.sampled
def test_the_readiness_probe_shows_when_workers_that_all_died_are_back(base):
    rest = free_port()
    server = Served(base, "--workers=2", f"--rest_api_port={rest}")
    try:
        assert readiness(rest) == 200
        killed = workers(server)
        for each in killed:
            each.kill()
        psutil.wait_procs(killed)
        assert readiness(rest) is None
        until(lambda: readiness(rest) == 200)
        until(lambda: len({*workers(server)} - {*killed}) == 2)
        assert answer(server) == 3.0
        status, said = server.end()
        assert status == 0, said
        assert len(lines_with(said, "worker-replaced", how="SIGKILL")) == 2
    finally:
        server.kill()


def test_a_worker_that_cannot_begin_ends_all(tmp_path):
    """The log is a folder: said once, with the status that one process alone would have."""
    config = tmp_path / "models.config"
    config.write_text("model_config_list {}")
    server = Served(f"--model_config_file={config}", "--workers=2", f"--access_log={tmp_path}",
                    ready=False)  # fmt: skip
    status, said = server.ended()
    assert (status, said) == (4, Containing(f"{tmp_path}", "a directory"))


def test_workers_end_with_their_parent(tmp_path):
    config = tmp_path / "models.config"
    config.write_text("model_config_list {}")
    server = Served(f"--model_config_file={config}", "--workers=2")
    processes = workers(server)
    server.process.kill()
    assert len(processes) == 2
    psutil.wait_procs(processes, timeout=30)
    assert not any(each.is_running() for each in processes)


@pytest.mark.sampled
@pytest.mark.parametrize("seconds", [0.0, 0.3, 1.0])
def test_workers_that_begin_end_with_their_parent_without_a_traceback(tmp_path, seconds):
    config = tmp_path / "models.config"
    config.write_text("model_config_list {}")
    server = Served(f"--model_config_file={config}", "--workers=2", ready=False)
    until(lambda: len(workers(server)) == 2)
    processes = workers(server)
    time.sleep(seconds)
    server.process.kill()
    psutil.wait_procs(processes, timeout=30)
    assert "Traceback" not in server.said
    server.kill()


@pytest.mark.sampled
@pytest.mark.parametrize("sent", [b"", b"\x80\x05\x95"])
def test_a_worker_whose_parent_is_gone_says_nothing(sent):
    read, write = os.pipe()
    os.close(read)
    begun = [sys.executable, "-m", "deploykit.serving.server.workers", "0", str(write)]
    done = subprocess.run(begun, input=sent, capture_output=True, pass_fds=[write], timeout=60)
    os.close(write)
    assert (done.returncode, done.stdout, done.stderr) == (143, b"", b"")


def test_a_worker_that_cannot_report_ends_without_a_traceback():
    """It is ready, but nobody reads that; its standard input is still open."""
    read, write = os.pipe()
    os.close(read)
    begun = [sys.executable, "-m", "deploykit.serving.server.workers", "0", str(write)]
    with subprocess.Popen(begun, stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                          pass_fds=[write]) as process:  # fmt: skip
        os.close(write)
        pickle.dump(ServerSettings((), port=0, workers=2), process.stdin)
        process.stdin.flush()
        assert b"Traceback" not in process.stderr.read()
        assert process.wait(60) == 143


@pytest.mark.sampled
def test_who_watches_does_not_hold_up_the_end(tmp_path):
    config = tmp_path / "models.config"
    config.write_text("model_config_list {}")
    server = Served(f"--model_config_file={config}", "--workers=2")
    processes = workers(server)
    with grpc.insecure_channel(server.address) as channel:
        watched = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watched).status == health_pb2.HealthCheckResponse.SERVING
        status, said = server.end()
    assert status == 0, said
    assert not any(each.is_running() for each in processes)


@pytest.mark.sampled
def test_a_worker_that_is_killed_again_and_again_comes_back_soon(tmp_path):
    """After the pauses of before, which grew to 30 seconds, it would not be there in time."""
    config = tmp_path / "models.config"
    config.write_text("model_config_list {}")
    server = Served(f"--model_config_file={config}", "--workers=2")
    request = GetModelStatusRequest()
    request.model_spec.name = "nobody"

    def answers() -> None:
        """Call on a connection of its own: either worker may have it, and none hangs."""
        with grpc.insecure_channel(server.address, ALONE) as server.channel:
            call = server.models.GetModelStatus.future(request, timeout=10)
            assert call.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE)

    try:
        staying, killed = workers(server)
        end = time.monotonic() + 60
        for _ in range(7):
            killed.kill()
            while len(found := [each for each in workers(server) if each != staying]) != 1 or (
                found == [killed]
            ):
                answers()
                assert time.monotonic() < end
            [killed] = found
        status, said = server.end()
        assert status == 0
        assert len(lines_with(said, "worker-replaced", how="SIGKILL")) == 7
    finally:
        server.kill()
