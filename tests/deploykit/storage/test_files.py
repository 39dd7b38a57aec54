"""Files are written whole or not at all."""

import os
import resource
import subprocess
import sys
import time

import numpy as np
import pytest

from deploykit.importers import graph_files
from deploykit.importers.graph_files import load_graph, save_graph
from deploykit.storage.files import default_output, write
from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.runtime.child_process import call
from tests.support import raises, shows


def test_default_names_stand_beside_the_input(tmp_path):
    folder = tmp_path / "v1.0"
    folder.mkdir()
    names = {
        "model.pb": "model.frozen.pb",
        "model.frozen.pb": "model.frozen.frozen.pb",
        "model.pbtxt": "model.frozen.pb",
        "model.keras": "model.frozen.pb",
        "model.ckpt": "model.ckpt.frozen.pb",
        "model.ckpt-100": "model.ckpt-100.frozen.pb",
        "v1.0": "v1.0.frozen.pb",
    }
    for source, expected in names.items():
        assert default_output(tmp_path / source, "frozen") == tmp_path / expected


def test_a_failure_midway_leaves_nothing(tmp_path):
    def pieces():
        yield b"first"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "x.pb", pieces())
    (tmp_path / "old.pb").write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "old.pb", pieces(), force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["old.pb"]
    assert (tmp_path / "old.pb").read_bytes() == b"old"


def write_with_little_room(path: str) -> str:
    """Write more than the process may; this is done in a child process."""
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    try:
        write(path, [b"x" * 400] * 5)
    except FileError as error:
        message = str(error)
    return message


@pytest.mark.sampled
def test_no_room_left(tmp_path):
    code = (
        "import sys; from tests.deploykit.storage.test_files import write_with_little_room as w;"
        "print(w(sys.argv[1]))"
    )
    path = tmp_path / "x.pb"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert shows(done.stdout, "file-action-failed", source=path, action="written")
    assert list(tmp_path.iterdir()) == []


def test_a_graph_above_2_gib_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(graph_files, "MAX_BYTES", 1000)
    graph = Graph([Node.constant("a", np.arange(200.0)), Node.constant("b", np.arange(3.0))])
    with raises(GraphError, "graph-too-large"):
        save_graph(graph, tmp_path / "x.pb")
    assert list(tmp_path.iterdir()) == []


def test_what_dead_processes_left_is_removed(tmp_path):
    leftover = tmp_path / ".x.pb.0a1b2c3d.tmp"
    leftover.write_bytes(b"half")
    alive = tmp_path / ".x.pb.4d5e6f70.tmp"
    alive.write_bytes(b"at work")
    code = (
        "import sys; from pathlib import Path\n"
        "from deploykit.transforms.untrusted.file_locks import locked\n"
        "with locked(Path(sys.argv[1])) as held: print(held, flush=True); sys.stdin.read()"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(alive)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with writer:
        assert writer.stdout.readline() == b"True\n"
        write(tmp_path / "x.pb", [b"whole"])
        assert sorted(p.name for p in tmp_path.iterdir()) == [alive.name, "x.pb"]
        writer.kill()
    write(tmp_path / "x.pb", [b"whole"], force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["x.pb"]


RACE = """
import os, sys, time
from deploykit.storage.files import write
from deploykit.transforms.common.errors import FileError
path, mine, links = sys.argv[1], sys.argv[2].encode(), sys.argv[3]
if links == "none":
    def link(*paths): raise PermissionError(1, "Operation not permitted")
    os.link = link
print("ready", flush=True)
start = float(input())
while time.time() < start: pass
try: write(path, [mine * 1000])
except FileError as error: print(error)
else: print("written", sys.argv[2])
"""


@pytest.mark.sampled
@pytest.mark.parametrize("links", ["hard", "none"])
def test_of_many_writers_of_one_name_one_does(tmp_path, links):
    """Also where the file system has no hard links, as on a memory stick."""
    for turn in range(2):
        path = tmp_path / f"{turn}.pb"
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", RACE, str(path), letter, links],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for letter in "abcdef"
        ]  # fmt: skip
        assert {writer.stdout.readline() for writer in writers} == {"ready\n"}
        start = time.time() + 0.1
        for writer in writers:
            writer.stdin.write(f"{start}\n")
            writer.stdin.flush()
        said = [writer.communicate()[0].strip() for writer in writers]
        (won,) = [each for each in said if each.startswith("written")]
        assert path.read_text() == won[-1] * 1000
        others = {each for each in said if each != won}
        assert others == {str(FileError("exists", source=path, what="the file"))}
    assert len(list(tmp_path.iterdir())) == 2  # and nothing hidden


def test_what_is_no_file_is_never_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    for name, code in (("pipe", "not-a-regular-file"), ("dangling", "exists")):
        with raises(FileError, code, source=tmp_path / name):
            write(tmp_path / name, [b"x"])
    for path in ("/dev/null", "/dev/zero", tmp_path / "pipe"):
        with raises(FileError, "not-a-regular-file"):
            write(path, [b"x"], force=True)


@pytest.mark.sampled
def test_killed_at_any_moment_the_file_is_whole_or_absent(tmp_path):
    code = (
        "import sys; from deploykit.storage.files import write\n"
        "while True: write(sys.argv[1], [sys.argv[2].encode() * 1000] * 200, force=True)"
    )
    path = tmp_path / "x.pb"
    for letter in "abcdefgh":
        writer = subprocess.Popen([sys.executable, "-c", code, str(path), letter])
        try:
            writer.wait(0.3 + ord(letter) % 7 / 50)
        except subprocess.TimeoutExpired:
            writer.kill()
            writer.wait()
        if path.exists():
            content = path.read_bytes()
            assert len(content) == 200_000
            assert len(set(content)) == 1


def test_text_and_binary_read_back_the_same(small, tmp_path):
    graph = load_graph(small)
    for name, as_text in (("a.pb", False), ("a.pbtxt", True)):
        save_graph(graph, tmp_path / name, as_text=as_text)
        assert str(load_graph(tmp_path / name)) == str(graph)


def test_children_find_the_packages_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("deploykit.transforms.ir.node:normal", "a:0") == "a"
