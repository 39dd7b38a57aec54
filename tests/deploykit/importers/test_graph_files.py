"""The file of a graph: read in little memory, whatever becomes of it meanwhile."""

import mmap
import subprocess
import sys

import numpy as np
import pytest

import deploykit
from deploykit.transforms.common.errors import FileError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.untrusted import files

PEAK = """
import sys
from deploykit import load_graph
from deploykit.benchmarking.engines.runner import status
before = status("VmHWM")
graph = load_graph(sys.argv[1], needs_output=False)
print((status("VmHWM") - before) / (1 << 20), sum(int(node.value[0]) for node in graph))
"""


def test_a_graph_is_held_once_while_it_is_read(tmp_path):
    nodes = [
        Node.constant(f"c{n}", np.arange(n, n + (1 << 20), dtype=np.float32)) for n in range(24)
    ]
    deploykit.save_graph(Graph(nodes), tmp_path / "large.pb")
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path / "large.pb")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    peak, total = map(float, done.stdout.split())
    assert total == sum(range(24))
    assert peak < 1.6 * 96  # MiB: the weights once, and a few of them for a moment


@pytest.mark.parametrize("size", [0, 1, mmap.PAGESIZE, 3 * mmap.PAGESIZE + 7])
def test_what_is_released_is_read_as_any_other_file(tmp_path, size):
    path = tmp_path / "file"
    path.write_bytes(bytes(n % 251 for n in range(size)))
    assert files.read_released(path)[:] == files.read_bytes(path)


@pytest.mark.parametrize(
    ("begin", "end", "gone"), [(0, 3, 3), (1, 3, 2), (0.5, 3.5, 2), (1.2, 1.9, 0)]
)
def test_only_whole_pages_are_released(tmp_path, begin, end, gone):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 4 * mmap.PAGESIZE)
    content = files.read_released(path)
    files.release(content, int(begin * mmap.PAGESIZE), int(end * mmap.PAGESIZE))
    assert content[:].count(b"\0") == gone * mmap.PAGESIZE
    files.release(path.read_bytes(), 0, 1)


@pytest.mark.parametrize("change", [b"", b"x" * 10])
def test_a_file_that_changes_while_it_is_read(tmp_path, monkeypatch, change):
    path = tmp_path / "file"
    path.write_bytes(b"before")
    opened = files.opened

    def changed(name):
        path.write_bytes(change)
        monkeypatch.setattr(files, "opened", opened)
        return opened(name)

    monkeypatch.setattr(files, "opened", changed)
    assert files.read_released(path) == change


def test_there_is_no_memory(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(files.mmap, "mmap", none)
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(MemoryError, match="its 1 bytes"):
        files.read_released(tmp_path / "file")


def test_what_is_no_file(tmp_path):
    with pytest.raises(FileError, match="No such file"):
        files.read_released(tmp_path / "missing")
