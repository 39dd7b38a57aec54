"""`max_queue_wait_ms`: honest bursts are served; what would wait longer is refused at once."""

import json
import math

import grpc
import pytest

from tests.serving.infer_callers import http_ask
from tests.serving.server.test_infer_limits import infer_slow, is_free, post_slow, started
from tests.serving.slow_model import LONG
from tests.waiting import until

LITTLE, BURST = 500, 64


def served(base, **options):
    """Return a server that knows how long the slow model takes for a little."""
    found = started(base, **options)
    for _ in range(3):
        infer_slow(found, LITTLE, 60).result()
    return found


def end(found):
    found.channel.close()
    found.server.drain(1)


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    found = served(tmp_path_factory.mktemp("strict"), slots=1, max_queue_wait_ms=1e-6)
    yield found
    end(found)


def taken(found) -> int:
    """Return how many requests have a slot or wait for one."""
    return found.server.plane._slots._taken


def refused_sizes(found) -> list[int | None]:
    """Return the bytes of each refused request over gRPC, by the log; None: it was not read."""
    lines = map(json.loads, found.log.read_text().splitlines())
    return [line.get("bytes_in") for line in lines
            if (line["protocol"], line["code"]) == ("grpc-v2", "RESOURCE_EXHAUSTED")]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("quick", [False, True])
def test_what_would_wait_too_long_is_refused_while_the_others_compute(strict, quick):
    """Without a recent request that needs no slot, its body is not read."""
    if quick:
        until(lambda: is_free(strict) and strict.server.plane._last_quick > 0)
    else:
        strict.server.plane._last_quick = -math.inf
    before = len(refused_sizes(strict))
    first = infer_slow(strict, LONG, 6)
    until(lambda: taken(strict) == 1)
    second = infer_slow(strict, LITTLE, 60)
    until(lambda: taken(strict) == 2)
    for _ in range(3):
        refused = infer_slow(strict, LITTLE, 60)
        assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "--max_queue_wait_ms" in refused.details()
        status, found, headers = post_slow(strict, LITTLE)
        assert (status, headers["retry-after"]) == (429, "1")
        assert found == {"error": refused.details()}
        assert http_ask(strict, "GET", "/v2/health/ready")[0] == 200
    if quick:
        assert is_free(strict), "a request that needs no slot does not wait for one"
    assert [first.done(), second.done()] == [False, False]
    assert first.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert second.code() is grpc.StatusCode.OK
    assert infer_slow(strict, LITTLE, 60).code() is grpc.StatusCode.OK
    until(lambda: len(refused_sizes(strict)) == before + 3)
    assert [size is None for size in refused_sizes(strict)[before:]] == [not quick] * 3


@pytest.mark.sampled
@pytest.mark.parametrize("limit", [60_000, 0])
def test_a_burst_of_honest_clients_is_served_and_so_are_clients_that_call_again(tmp_path, limit):
    found = served(tmp_path, slots=2, max_in_flight=BURST, max_queue_wait_ms=limit)
    try:
        for _ in range(3):
            calls = [infer_slow(found, LITTLE, 60) for _ in range(BURST)]
            assert {each.code() for each in calls} == {grpc.StatusCode.OK}
    finally:
        end(found)
