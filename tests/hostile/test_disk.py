"""A full disk and a folder that cannot be written to: exit status 4, and nothing half-written."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hostile.watching import Place, environment, run
from tests.hostile.writers import WRITERS, writer

pytestmark = pytest.mark.sampled


@contextmanager
def small_disk(folder: Path, size: str):
    """Put a small disk in the place of a folder."""
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "hostile", folder],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"mount is not permitted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk(name, tmp_path):
    place = Place(tmp_path)
    made = writer(name, place, kibibytes=3000)
    goods = {path: path.read_bytes() for path in place.goods.iterdir()}
    with small_disk(place.out, "256k"):
        (place.out / "precious").write_bytes(b"x" * 1000)
        ended = run(made.line, place, 120)
        assert ended.status == 4, ended.err
        assert "No space left" in ended.err
        assert str(place.out) in ended.err
        left = made.listing()
        assert left.pop("precious")
        if name == "records":  # whole shards are kept for the next run, or none
            left = {k: v for k, v in left.items() if k.endswith((".tmp", ".index.json"))}
        assert not left
        assert (place.out / "precious").read_bytes() == b"x" * 1000
    assert {path: path.read_bytes() for path in place.goods.iterdir()} == goods
    assert not list(place.temporary.iterdir())
    ended = run(made.line, place, 120)  # now that there is room
    assert ended.status == 0, ended.err


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_keeps_what_was_there(name, tmp_path):
    place = Place(tmp_path)
    with small_disk(place.out, "256k"):
        small = writer(name, place)
        if name == "records":
            pytest.skip("records are replaced one by one")
        assert run(small.line, place, 120).status == 0
        before = small.listing()
        large = writer(name, place, kibibytes=3000)
        ended = run(large.again, place, 120)
        assert ended.status == 4, ended.err
        assert small.listing() == before


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_temporary_folder(name, tmp_path):
    place = Place(tmp_path)
    made = writer(name, place, kibibytes=3000)
    with small_disk(place.temporary, "16k"):
        (place.temporary / "full").write_bytes(b"x" * 12_000)
        ended = run(made.line, place, 120)
        assert ended.status in (0, 4), ended.err
        assert "Traceback" not in ended.err
        if ended.status == 4:
            assert not made.listing()
        assert [path.name for path in place.temporary.iterdir()] == ["full"]


CODE = """
import os, sys
from deploykit.cli.main import run
run(sys.argv[2:])  # into a folder that is not there, which is refused, but all is imported
os.setgid(65534), os.setuid(65534)
sys.exit(run([each.replace("/nothing/", "/out/") for each in sys.argv[2:]]))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("name", WRITERS)
def test_a_folder_that_cannot_be_written_to(name, tmp_path):
    """As another user: root may write anywhere."""
    place = Place(tmp_path)
    made = writer(name, place)
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path("/") and os.stat(folder).st_uid == os.getuid():
            folder.chmod(folder.stat().st_mode | 0o055)
    place.out.chmod(0o555)
    line = [each.replace(str(place.out), str(place.root / "nothing")) for each in made.line]
    done = subprocess.run(
        [sys.executable, "-c", CODE, "-", *line], capture_output=True, text=True, check=False,
        env=environment(TMPDIR=str(place.temporary)), cwd=place.logs,
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    reasons = ("is not writable", "cannot be written", "Permission denied")
    assert any(reason in last for reason in reasons), last
    assert not made.listing()
