"""Version directories: whole or absent, never replaced, each number given once."""

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploykit.serving.saved_model import write_version as export
from deploykit.serving.saved_model.write_version import check_name, versions_in, write_version
from deploykit.transforms.common.errors import Error, FileError
from tests.support import Containing, raises

FILES = {"saved_model.pb": [b"graph", b" and signatures"], "variables/": (), "a/b": [b"c"]}
EXPORTERS, EXPORTS = 6, 40
UNPRIVILEGED = 65534  # root may write anywhere, so tests of permissions give up being it


def hidden(folder: Path) -> list[str]:
    return [child.name for child in folder.iterdir() if child.name.startswith(".")]


def test_a_version_has_all_files(tmp_path):
    folder = write_version(tmp_path / "new" / "base", "m", FILES)
    assert folder == tmp_path / "new" / "base" / "m" / "1"
    assert (folder / "saved_model.pb").read_bytes() == b"graph and signatures"
    assert (folder / "a" / "b").read_bytes() == b"c"
    assert list((folder / "variables").iterdir()) == []
    assert hidden(folder.parent) == []


def test_the_next_number_follows_the_highest_however_it_is_written(tmp_path):
    (tmp_path / "m" / "-200").mkdir(parents=True)
    assert export._next(versions_in(tmp_path / "m")) == 1
    for name in ("00000123", "7", "x9", ".tmp", "99999999999999999999"):
        (tmp_path / "m" / name).mkdir(parents=True)
    assert set(versions_in(tmp_path / "m")) == {-200, 7, 123}
    assert write_version(tmp_path, "m", FILES).name == "124"
    (tmp_path / "m" / "130").symlink_to("nowhere")
    (tmp_path / "m" / "131").write_text("a file")
    assert write_version(tmp_path, "m", FILES).name == "132"


@pytest.mark.parametrize("taken", ["5", "0005"])
def test_a_version_is_never_replaced(tmp_path, taken):
    old = tmp_path / "m" / taken
    old.mkdir(parents=True)
    for content in (None, "kept"):
        if content:
            (old / "saved_model.pb").write_text(content)
        with raises(FileError, "version-exists", next=6):
            write_version(tmp_path, "m", FILES, version=5)
    assert [p.name for p in old.iterdir()] == ["saved_model.pb"]
    assert (old / "saved_model.pb").read_text() == "kept"
    assert hidden(tmp_path / "m") == []


def test_a_version_that_appears_meanwhile_is_not_replaced(tmp_path, monkeypatch):
    """What was seen as free is taken when it comes to renaming."""
    first = write_version(tmp_path, "m", FILES)
    real, seen = export.versions_in, [{}, {}, {}]  # the first one's version is not there yet
    monkeypatch.setattr(os.path, "lexists", lambda path: False)
    monkeypatch.setattr(export, "versions_in", lambda folder: seen.pop() if seen else real(folder))
    assert write_version(tmp_path, "m", FILES).name == "2"
    assert not seen
    seen += [{}, {}]
    with raises(FileError, "version-exists"):
        write_version(tmp_path, "m", FILES, version=1)
    assert (first / "a" / "b").read_bytes() == b"c"


def test_the_last_number_is_an_int64(tmp_path):
    last = write_version(tmp_path, "m", FILES, version=(1 << 63) - 1)
    assert last.name == "9223372036854775807"
    with raises(FileError, "version-none-left"):
        write_version(tmp_path, "m", FILES)
    assert hidden(tmp_path / "m") == []


@pytest.mark.parametrize("name", ["", "a/b", "../m", ".m", "a:1", "a b", "12", "0012", "a\n"])
def test_names_that_no_request_could_use(name):
    with pytest.raises(Error, match="--name"):
        check_name(name)


def test_names_that_are_fine():
    for name in ("m", "half_plus_two", "résumé-v2.1", "1a"):
        assert check_name(name) == name


EXPORTER = """
import sys
from pathlib import Path
from deploykit.serving.saved_model.write_version import write_version
base, who, exports = sys.argv[1:]
for number in range(int(exports)):
    mark = f"{who} {number}".encode()
    write_version(Path(base), "m", {f"part-{n}": [mark] for n in range(4)})
"""


def exporter(base: Path, who: object, exports: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", EXPORTER, str(base), str(who), str(exports)])


@pytest.mark.sampled
def test_exporters_side_by_side_get_a_number_each(tmp_path):
    processes = [exporter(tmp_path, who, EXPORTS) for who in range(EXPORTERS)]
    assert [process.wait() for process in processes] == [0] * EXPORTERS
    found = versions_in(tmp_path / "m")
    assert sorted(found) == list(range(1, EXPORTERS * EXPORTS + 1))
    marks = [{part.read_bytes() for part in folder.iterdir()} for folder in found.values()]
    assert all(len(mark) == 1 for mark in marks), "a version holds files of two exporters"
    assert len(set.union(*marks)) == EXPORTERS * EXPORTS, "an export is missing"
    assert all(len(list(folder.iterdir())) == 4 for folder in found.values())
    assert hidden(tmp_path / "m") == []


def test_killed_at_any_moment_versions_are_whole_and_the_rest_goes(tmp_path):
    for number in range(8):
        process = exporter(tmp_path, number, 10_000)
        while not (tmp_path / "m").is_dir():
            time.sleep(0.01)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.25 + number / 100)
        process.kill()
        process.wait()
    assert all(len(list(folder.iterdir())) == 4 for folder in versions_in(tmp_path / "m").values())
    (tmp_path / "m" / ".tmp-dead").mkdir()
    write_version(tmp_path, "m", FILES)
    assert hidden(tmp_path / "m") == []


def test_what_another_exporter_writes_is_left_alone(tmp_path):
    def pieces():
        yield b"first"
        second = write_version(tmp_path, "m", FILES)
        assert second.name == "1"
        assert len(hidden(second.parent)) == 1
        yield b" second"

    first = write_version(tmp_path, "m", {"saved_model.pb": pieces()})
    assert first.name == "2"
    assert (first / "saved_model.pb").read_bytes() == b"first second"


def test_a_failure_midway_leaves_nothing(tmp_path):
    def pieces():
        yield b"first"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_version(tmp_path, "m", {**FILES, "last": pieces()})
    assert not (tmp_path / "m").exists()


def refused(base: str, limit: str) -> None:
    """Say why a version cannot be written; this is done in a child process."""
    if limit == "size":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
    if limit == "user":
        os.setuid(UNPRIVILEGED)
    try:
        write_version(Path(base), "m", FILES)
    except FileError as error:
        print(error.exit_status, error)


def ask_child(base: Path, limit: str) -> str:
    code = "import sys; from tests.serving.saved_model.test_write_version import refused; "
    code += "refused(*sys.argv[1:])"
    command = [sys.executable, "-c", code, str(base), limit]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.sampled
def test_no_room_left(tmp_path):
    said = ask_child(tmp_path, "size")
    assert said == Containing(f"4 {tmp_path}/m", os.strerror(errno.EFBIG))
    assert not (tmp_path / "m").exists()


@pytest.mark.sampled
@pytest.mark.skipif(os.getuid() != 0, reason="gives up being root")
def test_a_folder_that_cannot_be_written(tmp_path):
    for parent in [tmp_path, *tmp_path.parents]:
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    (tmp_path / "m" / "1").mkdir(parents=True)
    for base in (tmp_path, tmp_path / "new"):
        assert "Permission denied" in ask_child(base, "user")
    assert os.listdir(tmp_path / "m") == ["1"]


def test_links(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "base").symlink_to(tmp_path / "there")
    assert write_version(tmp_path / "base", "m", FILES).name == "1"
    assert (tmp_path / "there" / "m" / "1" / "saved_model.pb").exists()
    for name, target in (("nowhere", "missing"), ("loop", "loop")):
        (tmp_path / "base" / name).symlink_to(target)
        with raises(FileError, "file-action-failed"):
            write_version(tmp_path / "base", name, FILES)
    (tmp_path / "file").write_text("x")
    for base, name in ((tmp_path / "file", "m"), (tmp_path, "file")):
        with pytest.raises(FileError):
            write_version(base, name, FILES)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    leftover = tmp_path / "there" / "m" / ".tmp-link"
    leftover.symlink_to(outside)
    write_version(tmp_path / "base", "m", FILES)
    assert (outside / "kept").exists(), "a leftover is not followed"
