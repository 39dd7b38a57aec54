"""Floods of HTTP/2 frames over four connections: calls of others are answered all the same."""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

import grpc
import pytest

from tests.serving.official_stubs import PredictionServiceStub
from tests.serving.served import ROOT, Served
from tests.serving.server.test_server import half
from tests.serving.server.test_slow_clients import PREDICT
from tests.serving.small_models import half_plus

RECONNECT = 20
DEADLINE = 60  # seconds: calls must be answered, on a slow machine too
PRIVATE = [("grpc.use_local_subchannel_pool", 1)]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    server = Served(half_plus(tmp_path_factory.mktemp("models") / "half_plus_two", 2))
    yield server
    server.kill()


def channels(address: str) -> Iterator[grpc.Channel]:
    """Yield a channel for each call; several calls share one."""
    while True:
        with grpc.insecure_channel(address, PRIVATE) as channel:
            for _ in range(RECONNECT):
                yield channel


def codes(address: str, calls: int) -> Counter[str]:
    """Return the codes of calls, one after the other."""
    found: Counter[str] = Counter()
    for channel, _ in zip(channels(address), range(calls), strict=False):
        try:
            PredictionServiceStub(channel).Predict(half(), timeout=DEADLINE)
            found["OK"] += 1
        except grpc.RpcError as error:
            found[error.code().name] += 1
        time.sleep(0.02)
    return found


# On two cores, the flood has one of them, and what runs beside would have the other.
@pytest.mark.alone
@pytest.mark.parametrize(
    "calls", [pytest.param(20, marks=pytest.mark.slow), pytest.param(400, marks=pytest.mark.full)]
)
@pytest.mark.parametrize("kind", ["rapid reset", "continuation", "zero window", "ping", "settings"])
def test_calls_beside_a_flood_are_answered(served, kind, calls):
    """A flood that is hung up on connects again."""
    arguments = [kind, str(served.document["port"]), PREDICT, half().SerializeToString().hex()]
    flood = subprocess.Popen(
        [sys.executable, "-m", "tests.serving.http2_flood", *arguments],
        cwd=ROOT, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        time.sleep(1)
        assert codes(served.address, calls) == {"OK": calls}
    finally:
        flood.kill()
        flood.wait()
