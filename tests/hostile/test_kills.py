"""Writers that are killed at any moment: what they leave is whole, and the next run tidies up."""

import json
import os
import random
import subprocess
import time
from pathlib import Path

import pytest

from tests import pairwise
from tests.hostile.watching import Place, alive, descendants, kill, outliving, run, start
from tests.hostile.writers import WRITERS, Writer, writer

ROUNDS = [
    pytest.param(10, marks=pytest.mark.slow),
    pytest.param(100, marks=pytest.mark.full),
]
EVERY = 10  # rounds after which a run goes to its end
SECONDS = 2.0  # within which the last descendant of a killed command is gone


def finish(made: Writer) -> float:
    """Run the command to its end; return how long it took."""
    ended = run(made.again, made.place, 120)
    assert ended.status == 0, ended.err
    return ended.seconds


def killed_after(made: Writer, seconds: float, below: bool) -> None:
    """Kill the command, or with `below` one of its children, at that time, with all that is left.

    The children are not killed: they must end by themselves.
    """
    process = start(made.again, made.place.logs, TMPDIR=str(made.place.temporary))
    family: set[int] = set()
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        family |= descendants(process.pid)
        time.sleep(0.01)
    family |= descendants(process.pid)
    victims = [pid for pid in family if alive(pid)]
    if below and victims:
        kill(max(victims))
        process.wait(30)
        assert process.returncode in (0, 2, 6), (made.place.logs / ".err").read_text()
    else:
        kill(process.pid)
        process.wait(10)
    left = outliving(family, SECONDS)
    kill(*left)
    assert not left, f"{len(left)} processes outlived a kill after {seconds:.2f} s"


def whole(made: Writer, reference: dict[str, str]) -> None:
    """Check that everything with a final name has the right bytes."""
    for name, digest in made.listing().items():
        parts = Path(name).parts
        if any(part.startswith(".") for part in parts):
            continue  # is not there yet
        if made.name == "export":
            assert parts[2].isdigit(), name
            name = str(Path(*parts[:2], "1", *parts[3:]))
        assert digest == reference[name], f"{name} is torn"
    if made.name == "export":
        for version in made.place.out.glob("served/*/[0-9]*"):
            found = {str(p.relative_to(version)) for p in version.rglob("*") if p.is_file()}
            wanted = {str(Path(*Path(name).parts[3:])) for name in reference}
            assert found == wanted, f"version {version.name} is incomplete"


def fits(made: Writer) -> None:
    """Check that what lies beside a graph belongs to it, or does no harm."""
    for graph in made.place.out.glob("*.pb"):
        beside = graph.with_name(f"{graph.name}.json")
        if beside.exists():
            json.loads(beside.read_text())
            ended = run(["inspect", str(graph)], made.place, 60)
            assert ended.status == 0, ended.err


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("name", pairwise.drawn(__name__, WRITERS, 1))
def test_killed_at_any_moment(name, rounds, tmp_path):
    place = Place(tmp_path)
    made = writer(name, place)
    finish(made)
    reference = made.listing()
    longest = finish(made)
    goods = {path: path.read_bytes() for path in place.goods.iterdir()}
    moments, absent = random.Random(pairwise.seed()), 0
    for number in range(rounds):
        share = moments.uniform(0.05, 1.0) if number % 2 else moments.uniform(0.75, 1.1)
        if number % EVERY == 3:  # in each ten, one kill at least comes before anything is whole
            share = moments.uniform(0.05, 0.4)
        if number % 3 == 0:
            for path in sorted(place.out.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
        killed_after(made, share * longest, below=number % 5 == 4)
        absent += not made.listing().keys() & reference.keys()
        whole(made, reference)
        assert {path: path.read_bytes() for path in place.goods.iterdir()} == goods
        if number % EVERY == EVERY - 1:
            fits(made)
            for path in place.temporary.iterdir():  # young ones may be of a command that starts
                os.utime(path, (time.time() - 600,) * 2)
            finish(made)
            whole(made, reference)
            hidden = [p for p in place.out.rglob("*") if p.name.startswith(".")]
            assert not hidden, f"a later run leaves {hidden}"
            assert not list(place.temporary.iterdir())
    assert absent, "no kill came before the end: the moments are wrong"


@pytest.mark.sampled
def test_two_at_once_of_which_one_writes(tmp_path):
    place = Place(tmp_path)
    made = writer("optimize", place)
    finish(made)
    reference = made.listing()
    for number in range(6):
        for path in place.out.iterdir():
            path.unlink()
        both = []
        for each in "ab":
            (place.logs / each).mkdir(exist_ok=True)
            both.append(start(made.line, place.logs / each, TMPDIR=str(place.temporary)))
        codes = sorted(process.wait(120) for process in both)
        said = [(place.logs / each / ".err").read_text() for each in "ab"]
        assert codes == [0, 4], f"round {number}: {codes}: {said}"
        assert made.listing() == reference
        assert not list(place.temporary.iterdir())


@pytest.mark.slow
def test_a_kill_is_seen_where_a_writer_is_not_careful(tmp_path):
    """The check above fails for a plain write."""
    place = Place(tmp_path)
    made = Writer("optimize", place, [])
    torn = place.out / "o.pb"
    code = "import sys, time; f = open(sys.argv[1], 'wb', 0)\nwhile True: f.write(b'x' * 1000)"
    process = subprocess.Popen([os.sys.executable, "-c", code, str(torn)])
    while not torn.exists() or not torn.stat().st_size:
        time.sleep(0.01)
    process.kill()
    process.wait()
    with pytest.raises(AssertionError, match="torn"):
        whole(made, {"o.pb": "0" * 64})
