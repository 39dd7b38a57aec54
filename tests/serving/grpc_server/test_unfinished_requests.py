"""Requests that never come to their end: what all of them hold is bounded, and given back."""

import threading
from contextlib import ExitStack, closing

import psutil
import pytest

from deploykit.serving.grpc_server.threads import UnfinishedRequests
from tests.serving.grpc_server.test_grpc_calls import until
from tests.serving.served import Served
from tests.serving.unfinished_upload import UnfinishedUpload

MIB = 1 << 20
LARGEST = 256 * MIB
USUAL = 1000 * MIB
METHODS = ("/tensorflow.serving.PredictionService/Predict", "/grpc.health.v1.Health/Check",
           "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")  # fmt: skip


class Pool:
    """Calls that have waited for long, by what they hold, and a process that does nothing else."""

    def __init__(self):
        self.waits = threading.Event()
        self.calls: dict[str, tuple[int, float]] = {}  # bytes, and since when
        self.count = 0
        self.others = USUAL
        self.unfinished = UnfinishedRequests([self, Idle()], LARGEST, self.resident)

    def resident(self) -> int:
        return self.others + sum(size for size, _ in self.calls.values())

    def waiting(self, seconds: float = 0.0) -> list[tuple[str, float]]:
        return [(name, since) for name, (_, since) in self.calls.items()]

    def end(self, call: str) -> None:
        del self.calls[call]

    def come(self, *sizes: int) -> None:
        for size in sizes:
            self.count += 1
            self.calls[f"{self.count}"] = (size * MIB, float(self.count))

    def after_looks(self, now: float, count: int = 50) -> list[str]:
        for _ in range(count):
            self.unfinished.look(now)
        return list(self.calls)


class Idle:
    def waiting(self, seconds: float = 0.0) -> list[tuple[str, float]]:
        return []


@pytest.fixture
def pool():
    return Pool()


def test_two_may_be_as_slow_as_they_like(pool):
    pool.come(250, 250)
    pool.others *= 3  # a model is loaded meanwhile
    assert pool.after_looks(10) == ["1", "2"]


def test_those_that_wait_longest_go_until_the_rest_fits(pool):
    pool.come(*[60] * 9)
    assert pool.after_looks(10, 1) == list("23456789")  # 480 MiB: as two of the largest
    assert pool.after_looks(10) == list("23456789")
    pool.come(*[50] * 32)
    left = [str(number) for number in range(33, 42)]  # many go at once, and no more than need be
    assert pool.after_looks(10, 1) == left
    assert pool.after_looks(10) == left


def test_many_that_hold_little_stay(pool):
    pool.come(*[4] * 128)
    assert len(pool.after_looks(10)) == 128


def test_memory_of_others_ends_calls_once_at_most(pool):
    """It is taken for theirs while more than two wait; then it is usual."""
    pool.come(*[1] * 10)
    pool.others += 600 * MIB
    assert pool.after_looks(10) == ["9", "10"]
    pool.after_looks(12)
    pool.come(*[1] * 3)
    assert len(pool.after_looks(12.5)) == 2  # a crowd was there just now
    pool.after_looks(16)
    pool.come(*[1] * 30)
    assert len(pool.after_looks(17)) == 32


def test_what_a_crowd_left_behind_is_not_usual_at_once(pool):
    pool.come(*[200] * 9)
    assert len(pool.after_looks(10)) == 2
    pool.calls.clear()
    pool.others += 400 * MIB  # freed, and not given back yet
    pool.after_looks(11)
    pool.others -= 400 * MIB
    pool.come(*[200] * 9)
    assert len(pool.after_looks(11.5)) == 2


def grown(served: Served, before: int) -> int:
    return psutil.Process(served.process.pid).memory_info().rss - before


def most_grown(served: Served, before: int, uploads: list[UnfinishedUpload], size: int) -> int:
    """Send all but the last bytes, in turn, about 256 MiB a second; return the most ever held."""
    most, step = 0, max(32 * MIB // len(uploads), MIB)
    for _ in range(0, size - step, step):
        for each in uploads:
            each.send(step)
        threading.Event().wait(step * len(uploads) / (256 * MIB))
        most = max(most, grown(served, before))
    return most


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("largest", "count"), [(64, 16), (256, 12), pytest.param(256, 40, marks=pytest.mark.full)]
)
def test_memory_is_bounded_and_comes_back(tmp_path, largest, count):
    config = tmp_path / "models.config"
    config.write_text("model_config_list {}")
    # As in test_memory.py: what is resident is what the server itself holds.
    served = Served(f"--model_config_file={config}", f"--max_message_mb={largest}",
                    MALLOC_ARENA_MAX="1")  # fmt: skip
    size, port = (largest - 6) * MIB, served.document["port"]
    try:
        before = grown(served, 0)
        with closing(UnfinishedUpload(port, METHODS[0], size)) as alone:
            most_grown(served, before, [alone], size)
            alone.hear(0)
            assert alone.reset is None
        with ExitStack() as stack:
            uploads = [stack.enter_context(closing(UnfinishedUpload(port, METHODS[n % 3], size)))
                       for n in range(count)]  # fmt: skip
            most = most_grown(served, before, uploads, size)
            assert most < (640 if largest == 64 else 1536) * MIB
            for each in uploads:
                each.hear(0)
            assert sum(each.reset is None for each in uploads) >= 2
        until(lambda: grown(served, before) < 64 * MIB)
        assert served.end()[0] == 0
    finally:
        served.kill()
