"""TensorFlow's version is found whatever the wheel that brought it is called."""

import os
import subprocess
import sys

import pytest

from deploykit.transforms.common.errors import MissingPackageError
from deploykit.transforms.engines import engines
from deploykit.transforms.engines.packages import Wheel, tensorflow_wheel
from tests.support import raises

WHEELS = [
    "tensorflow", "tensorflow-cpu", "tensorflow_intel", "tensorflow_rocm", "tensorflow_macos",
    "tf_nightly", "tf-nightly-cpu", "our_own_tensorflow",
]  # fmt: skip


def install(folder, name, version, packages=("tensorflow",)):
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (about / "top_level.txt").write_text("\n".join(packages) + "\n")
    return about


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A folder in front of all others that Python imports from, with an empty TensorFlow."""
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise RuntimeError('it was imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    return tmp_path


@pytest.mark.parametrize("name", WHEELS)
def test_the_wheel_is_found_by_the_package_it_brings(packages, name):
    install(packages, name, "2.20.1")
    install(packages, "tensorflow_io_gcs_filesystem", "0.37.1", ["tensorflow_io_gcs_filesystem"])
    found = tensorflow_wheel()
    assert found == Wheel(name, "2.20.1")
    assert found.numbers == (2, 20)
    assert engines.version_of("tensorflow") == "2.20.1"


def test_of_two_wheels_over_one_folder_the_one_installed_last_counts(packages):
    for second, (name, version) in enumerate([("tensorflow_cpu", "2.18.1"), ("tf", "2.21.0")]):
        os.utime(install(packages, name, version), (second, second))
    assert tensorflow_wheel() == Wheel("tf", "2.21.0")


def test_a_build_from_source_says_its_version_in_its_headers(packages):
    header = packages / "tensorflow" / "include" / "tensorflow" / "core" / "public" / "version.h"
    header.parent.mkdir(parents=True)
    header.write_text("".join(
        f"#define TF_{part}_VERSION {number}\n"
        for part, number in (("MAJOR", 2), ("MINOR", 19), ("PATCH", 3))
    ))  # fmt: skip
    assert tensorflow_wheel() == Wheel("tensorflow", "2.19.3")


def test_without_tensorflow_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(engines, "tensorflow_wheel", lambda: None)
    with raises(MissingPackageError, "package-missing", title="TensorFlow", extra="tf"):
        engines.version_of("tensorflow")


@pytest.mark.sampled
def test_the_installed_tensorflow_says_the_same():
    code = "import tensorflow; print(tensorflow.__version__)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = tensorflow_wheel()
    assert found is not None
    assert found.version == said.stdout.strip()
