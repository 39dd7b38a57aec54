"""A Python or a wheel that is missing skips an optional pair, and fails any other one."""

import sys

import pytest

from tests.versions import __main__ as versions
from tests.versions.__main__ import PAIRS, Pair, outcome_of

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
NO_PYTHON = Pair("tensorflow==2.21.0", "3.99", optional=True)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(versions, "FOLDER", tmp_path)


def test_the_newest_python_is_tried_where_there_is_one():
    assert Pair("tensorflow==2.22.0rc0", "3.14", optional=True) in PAIRS
    assert [pair.python for pair in PAIRS if pair.optional] == ["3.14"]


@pytest.mark.parametrize(("optional", "kind"), [(True, "skipped"), (False, "failed")])
def test_a_python_that_is_missing(optional, kind):
    found, text = outcome_of(Pair("tensorflow==2.21.0", "3.99", optional=optional))
    assert found == kind
    assert text.lower() == f"{kind}: no python3.99 runs that has the module venv"


@pytest.mark.slow
def test_a_wheel_that_is_missing(monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    found, text = outcome_of(Pair("tensorflow==0.0.1", HERE, optional=True))
    assert (found, text) == ("skipped", f"skipped: no wheel of tensorflow==0.0.1 for Python {HERE}")


def test_the_last_line_counts_them(monkeypatch, capsys):
    monkeypatch.setattr(versions, "PAIRS", (NO_PYTHON,))
    monkeypatch.setattr(sys, "argv", ["versions"])
    assert versions.main() == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert last == "0 passed, 0 failed, 1 skipped"
