"""Clients that begin calls and never send them, ever anew: others are answered all the same."""

import threading
import time
from contextlib import ExitStack

import grpc
import pytest

from tests.serving.served import Served, free_port
from tests.serving.server.test_server import half
from tests.serving.server.test_slow_clients import HEAD, PREDICT, ask_rest, begun, until
from tests.serving.small_models import half_plus


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = half_plus(tmp_path_factory.mktemp("models") / "half_plus_two", 2)
    server = Served(folder, f"--rest_api_port={free_port()}", "--max_in_flight=16")
    yield server
    server.kill()


def succeeded(ask, count: int) -> int:
    """Return how many of so many calls were answered, at 20 a second."""
    good = 0
    for _ in range(count):
        try:
            ask()
            good += 1
        except (grpc.RpcError, OSError):
            pass
        time.sleep(0.05)
    return good


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize(
    ("rate", "count"), [(200, 100), pytest.param(200, 400, marks=pytest.mark.full)]
)
def test_a_flood_of_calls_that_never_send_their_request(served, rate, count):
    end, calls = threading.Event(), []

    def never():
        end.wait()
        yield from ()

    def flood(channel):
        call = channel.stream_unary(PREDICT)
        while not end.wait(1 / rate):
            calls.append(call.future(never()))

    with grpc.insecure_channel(served.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        thread = threading.Thread(target=flood, args=(channel,))
        thread.start()
        try:
            until(lambda: any(each.done() for each in list(calls)))  # the server is full
            good = succeeded(lambda: served.predictions.Predict(half(), timeout=5), count)
        finally:
            end.set()
            thread.join()
    assert good >= 0.98 * count


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("count", [50, pytest.param(200, marks=pytest.mark.full)])
def test_a_flood_of_connections_that_say_little(served, count):
    end = threading.Event()

    def flood(stack):
        while not end.wait(1 / 200):
            stack.enter_context(begun(served.document["rest_api_port"], HEAD))

    with ExitStack() as stack:
        thread = threading.Thread(target=flood, args=(stack,))
        thread.start()
        try:
            time.sleep(6)  # as many as are let in
            good = succeeded(lambda: ask_rest(served), count)
        finally:
            end.set()
            thread.join()
    assert good >= 0.98 * count
