"""The examples in docstrings of the API do what they say."""

import doctest
import shutil

import pytest

import deploykit
from tests.deploykit.conftest import FASHION

NAMES = [name for name in deploykit.__all__ if ">>>" in (getattr(deploykit, name).__doc__ or "")]


@pytest.mark.parametrize("name", NAMES)
def test_the_example_runs(name, tmp_path, monkeypatch):
    for file in ("fashion.keras", "test_1000.npz"):
        shutil.copy(FASHION / file, tmp_path)
    monkeypatch.chdir(tmp_path)
    found = getattr(deploykit, name)
    (example,) = doctest.DocTestFinder(recurse=False).find(
        found, name, globs={"deploykit": deploykit}
    )
    said: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    assert runner.run(example, out=said.append).failed == 0, "".join(said)
    assert example.examples
