"""Every option that names a file x every kind of bad file: one sentence, soon, and never a bug.

The readers are called in this process, as the API calls them; what they take is bounded by the
memory and the time that this process has for each.
"""

import contextlib
import os
import resource
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deploykit
from deploykit.benchmarking.results import load_result, load_tuned
from deploykit.client.label_image import open_image
from deploykit.data.data import open_data
from deploykit.data.preprocessing import preprocessing_of
from deploykit.data.reading import records
from deploykit.importers.metadata_file import load_sidecar
from deploykit.records.arrays import idx
from deploykit.records.cifar import cifar, read_pickle
from deploykit.records.images import Images
from deploykit.records.index import load_index
from deploykit.records.open_source import open_source
from deploykit.records.tables import Numbers, Texts
from deploykit.records.verify_records import sample
from deploykit.serving.client.endpoint import _content
from deploykit.serving.lifecycle.model_config import read_models
from deploykit.serving.protocol.protos import read_batching
from deploykit.serving.protocol.signatures import read_meta_graph
from deploykit.serving.saved_model.warmup_requests import FILE, read_requests
from deploykit.serving.server.config_files import read_monitoring, read_tls
from deploykit.storage.arrays import load_array, load_data
from deploykit.storage.files import load_document
from deploykit.storage.image_files import read_labels
from deploykit.storage.resume_file import State
from deploykit.transforms.common.errors import Error, FileError
from deploykit.transforms.freeze_requantization_ranges import _records
from deploykit.transforms.int8.ranges import load_ranges
from deploykit.transforms.ir.tfrecord import read_records
from deploykit.transforms.untrusted.files import sha256_of
from tests import pairwise

MAX_MEMORY = 600 << 20  # more than a process has that did nothing yet, for each reader
MAX_SECONDS = 60  # far more than any takes


def all_of(source: Any) -> None:
    """Read a source of records to its end."""
    for part in source.parts():
        source.read(part)


def in_folder(path: Path, name: str, read: Any) -> None:
    """Let a reader find the file under a name in a folder of its own."""
    folder = path.parent / "in a folder"
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        (folder / name).unlink()
    if len(path.name) < 256:
        (folder / name).symlink_to(path)
    read(folder)


def csv(path: Path) -> None:
    in_folder(path, "a.csv", lambda folder: list(read_all(open_data(str(folder / "a.csv")))))


def read_all(data: Any) -> Any:
    return records(data, tuple(data.features))


# Each option, argument or file beside one that is named, and what reads it.
READERS = {
    "--data FILE.npz": load_data,
    "--data FILE.csv": csv,
    "labels.csv of --data": lambda p: in_folder(p, "labels.csv", with_image),
    "--input x=FILE.npy": load_array,
    "--input x=FILE": lambda p: deploykit.load_graph(p),
    "--preprocess": preprocessing_of,
    "label --labels": read_labels,
    "label IMAGE": open_image,
    "records --labels": lambda p: in_folder(p, "x.csv", lambda f: Images(f, f / "x.csv")),
    "records SOURCE": lambda p: all_of(open_source([p])),
    "records SOURCE.csv": lambda p: all_of(Numbers([str(p)])),
    "records SOURCE.txt": lambda p: all_of(Texts([str(p)])),
    "records SOURCE.idx": lambda p: idx([p]),
    "records CIFAR": lambda p: cifar([p]),
    "records pickle": read_pickle,
    "records index": lambda p: in_folder(p, "a.index.json", load_index),
    "records verify": sha256_of,
    "records inspect": sample,
    "--warmup records": lambda p: list(read_records(p, compressed=False)),
    "--warmup gzip": lambda p: list(read_records(p, compressed=True)),
    "--warmup requests": lambda p: in_folder(p, FILE, lambda folder: list(read_requests(folder))),
    "compare A.json": load_result,
    "--tuned": load_tuned,
    "a document": lambda p: load_document(p, "tuned"),
    "--ranges": load_ranges,
    "min_max_log_file": lambda p: _records(str(p)),
    "--model_config_file": read_models,
    "--batching_parameters_file": read_batching,
    "--monitoring_config_file": read_monitoring,
    "--ssl_config_file": read_tls,
    "--ca": lambda p: _content(str(p)),
    "saved_model.pb": lambda p: in_folder(p, "saved_model.pb", read_meta_graph),
    "MODEL": deploykit.load_graph,
    "MODEL.keras": lambda p: in_folder(p, "x.keras", lambda f: deploykit.freeze(f / "x.keras")),
}
# What is passed over where it cannot be read, with a note: work begins anew.
LENIENT = {
    "X.pb.json": lambda p: in_folder(p, "x.pb.json", lambda f: load_sidecar(f / "x.pb", "")),
    "a resume file": lambda p: State(p, "records", {}),
}


def with_image(folder: Path) -> None:
    (folder / "a.jpg").write_bytes(b"\xff\xd8\xff")
    open_data(str(folder))


CONTENTS = {
    "empty": b"",
    "binary": np.random.default_rng(0).bytes(20_000),
    "brackets": b"[" * (3 << 20),
    "objects": b'{"a":' * (1 << 19),
    "number": b"9" * (1 << 20),
    "zeros": bytes(1 << 20),
    "one line": b"a" * (3 << 20),
    "cut": b'{"format": 1, "kind": "tuned", "sett',
    "utf-16": "\ufeff{}".encode("utf-16"),
    "surrogates": b"\xed\xa0\x80" * 1000,
    "records": b"\xff" * 7 + b"\x7f" + bytes(5000),
    "gzip": b"\x1f\x8b\x08\x00" + bytes(3000),
}
KINDS = ("missing", "folder", "pipe", "device", "loop", "unreadable", "long name", *CONTENTS)


def bad_file(folder: Path, kind: str) -> Path:
    path = folder / "file"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        return Path("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "long name":
        return folder / ("x" * 300)
    elif kind == "unreadable":
        path.write_bytes(b"{}")
        path.chmod(0)
    elif kind != "missing":
        path.write_bytes(CONTENTS[kind])
    return path


# Files that are what is asked for, or that may be missing, or that whoever calls judges.
FINE = {
    "records verify": set(CONTENTS),  # a digest of anything
    "--ca": set(CONTENTS),  # gRPC says what is wrong with it
    "label --labels": {"brackets", "objects", "number", "zeros", "one line", "cut"},
    "--data FILE.csv": {"brackets", "objects", "number", "one line", "cut"},
    "records SOURCE.csv": {"number"},
    "records SOURCE.txt": {"brackets", "objects", "number", "one line", "cut"},
    "records SOURCE": {"brackets", "objects", "number", "one line", "cut"},
    "records inspect": {"empty"},
    "--warmup records": {"empty"},
    "--warmup gzip": {"empty"},
    "--warmup requests": {"empty", "missing", "loop", "long name"},
    "labels.csv of --data": {"missing", "loop", "long name"},
    "--batching_parameters_file": {"empty"},
    "--monitoring_config_file": {"empty"},
    "MODEL.keras": {"unreadable", "long name"},  # its child could not start without rights
}


@contextlib.contextmanager
def bounds():
    """Let what takes too long, or too much memory, fail."""

    def stop(*_: object) -> None:
        raise TimeoutError("it was still reading")

    before = signal.signal(signal.SIGALRM, stop)
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    used = int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_DATA, (used + MAX_MEMORY, limits[1]))
    signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_DATA, limits)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("option", pairwise.drawn("bad_files", list(READERS), 4, quick=8))
def test_bad_files(tmp_path, option, kind, as_nobody):
    path = bad_file(tmp_path, kind)
    if kind in FINE.get(option, ()):
        with bounds(), contextlib.suppress(Error):
            READERS[option](path)
        return
    with bounds(), as_nobody(tmp_path, kind == "unreadable"), pytest.raises(Error) as found:
        READERS[option](path)
    message = str(found.value)
    assert "\n" not in message
    assert 10 < len(message) < 700
    assert "bug" not in message
    if kind in ("missing", "folder", "pipe", "device", "loop", "unreadable", "long name"):
        assert found.value.exit_status in (2, 4), message
    else:
        assert found.value.exit_status in (2, 3, 4, 5), message
    if kind in ("pipe", "device", "unreadable"):
        assert isinstance(found.value, FileError), message


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("option", LENIENT)
def test_bad_files_that_are_passed_over(tmp_path, option, kind, as_nobody):
    path = bad_file(tmp_path, kind)
    with bounds(), as_nobody(tmp_path, kind == "unreadable"):
        LENIENT[option](path)


@pytest.fixture
def as_nobody():
    """Drop the rights of root, which may read anything, for a block."""

    @contextlib.contextmanager
    def dropped(folder: Path, wanted: bool):
        if not wanted or os.getuid():
            yield
            return
        for each in (folder, *folder.parents[:-2]):
            each.chmod(0o777)
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)

    return dropped
