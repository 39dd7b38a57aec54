"""Long commands that are told to end, and what is left of them: no process and no file."""

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests import pairwise
from tests.hostile.asking import ParsedRequest
from tests.hostile.commands import Goods
from tests.hostile.corpus.structure import endless
from tests.hostile.watching import Place, alive, descendants, kill, outliving, start

pytestmark = pytest.mark.slow

SECONDS = 2.0  # within which all is over
BUSY = 8.0  # seconds of processor time: TensorFlow has started long ago
KERAS = Path(__file__).parents[2] / "models" / "fashion" / "fashion.keras"
RESUMES = ("tune", "quantize", "records")  # they keep what they have found, beside the output
RETAINED = ("state.json", ".state", ".parts.jsonl", ".index.json", ".tfrecord")


def lines(place: Place, address: str) -> dict[str, list[object]]:
    """Return commands that take long, each with whether it works in another process."""
    goods, out = Goods(place.goods), place.out
    table = place.goods / "rows.csv"
    np.savetxt(table, np.arange(900_000).reshape(-1, 3) % 997, "%d", ",")
    many = place.goods / "many.npz"
    np.savez(many, x=np.ones((2_000_000, 3), np.float32))
    loop = place.goods / "loop.pb"
    loop.write_bytes(endless().SerializeToString())
    return {
        "optimize": ["optimize", loop, "-o", out / "o.pb", "--verify"],
        "quantize": ["quantize", goods.rows, "-o", out / "q.pb", "--calibration", many],
        "benchmark": ["benchmark", goods.rows, "--seconds", 60],
        "tune": ["tune", goods.rows, "-o", out / "t.json", "--budget", 2],
        "verify": ["verify", loop, loop],
        "label": ["label", goods.image, "--model", goods.photos, "--labels", goods.labels],
        "records": ["records", "convert", table, out / "set", "--processes", 2],
        "load-test": ["load-test", address, "model", "--data", goods.arrays, "--seconds", 60,
                      "--processes", 2],
        "export": ["export", KERAS, out / "served"],
        "calibrate": ["calibrate", goods.rows, "--data", many, "-o", out / "r.json"],
    }  # fmt: skip


NAMES = ("optimize", "quantize", "benchmark", "tune", "verify", "label", "records", "load-test",
         "export", "calibrate")  # fmt: skip
MOMENTS = (0.3, 1.5, 3.0)  # seconds after the start


@pytest.fixture(scope="module")
def server():
    asked = ParsedRequest()
    yield asked.server.address
    asked.close()


@contextmanager
def started(line: list[object], place: Place, seconds: float) -> Iterator[tuple]:
    """Start a command; give it, and its family so many seconds later."""
    process = start([str(each) for each in line], place.logs, TMPDIR=str(place.temporary))
    family: set[int] = set()
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until and process.poll() is None:
            family |= descendants(process.pid)
            time.sleep(0.01)
        yield process, family
    finally:
        kill(process.pid, *family)
        process.wait()


EVERY = list(itertools.product(NAMES, [signal.SIGTERM, signal.SIGINT], MOMENTS))
SLOW = pairwise.sample(EVERY, pairwise.pairs, pairwise.seed())


@pytest.mark.parametrize(
    ("name", "number", "moment"),
    [pytest.param(*each, marks=[] if each in SLOW else pytest.mark.full) for each in EVERY],
)
def test_a_signal_ends_all(name, number, moment, server, tmp_path):
    place = Place(tmp_path)
    line = lines(place, server)[name]
    before = place.listing()
    with started(line, place, moment) as (process, family):
        if process.poll() is not None:
            pytest.skip("it was done before")
        process.send_signal(number)
        sent = time.monotonic()
        process.wait(30)
        took = time.monotonic() - sent
        left = outliving(family, max(0.0, SECONDS - took))
        said = (place.logs / ".err").read_text()
        names = [Path(f"/proc/{pid}/cmdline").read_bytes()[:90] for pid in left if alive(pid)]
    if process.returncode == 0 and name in ("label", "export", "records"):
        pytest.skip("it was done before the signal came")
    assert process.returncode == 128 + number, said
    assert took <= SECONDS, f"it took {took:.1f} s: {said}"
    assert not left, names
    assert "Traceback" not in said
    found = {each for each in place.listing().keys() - before.keys() if not kept(name, each)}
    assert not found


def kept(name: str, path: str) -> bool:
    """Say whether a command keeps this file for its next run."""
    if name not in RESUMES or not path.startswith("out/"):
        return False
    end = Path(path).name
    return path == "out/set" or end.endswith(RETAINED)


@pytest.mark.sampled
@pytest.mark.parametrize("name", NAMES)
def test_a_kill_of_the_first_process_ends_all(name, server, tmp_path):
    place = Place(tmp_path)
    with started(lines(place, server)[name], place, 3.0) as (process, family):
        if process.poll() is not None:
            pytest.skip("it was done before")
        family |= descendants(process.pid)
        assert family, "there is no other process to outlive it"
        kill(process.pid)
        process.wait()
        left = outliving(family, SECONDS)
        names = [Path(f"/proc/{pid}/cmdline").read_bytes()[:90] for pid in left]
    assert not left, names


@pytest.mark.parametrize("command", ["optimize --verify", "benchmark", "verify"])
def test_a_kill_ends_a_graph_that_never_ends(command, tmp_path):
    place = Place(tmp_path)
    model = place.goods / "loop.pb"
    model.write_bytes(endless().SerializeToString())
    name, *options = command.split()
    line = [name, model, *options, *([model] if name == "verify" else ())]
    with started(line, place, 3.0) as (process, family):
        until = time.monotonic() + 100
        while not any(seconds_of(pid) > BUSY for pid in family if alive(pid)):
            assert process.poll() is None, (place.logs / ".err").read_text()
            assert time.monotonic() < until, "nothing computes"
            time.sleep(0.1)
            family |= descendants(process.pid)
        kill(process.pid)
        process.wait()
        left = outliving(family, SECONDS)
    assert not left


def seconds_of(pid: int) -> float:
    """Return the processor time that a process has taken."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0
