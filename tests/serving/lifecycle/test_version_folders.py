"""Versions on disk: which names count, and what each policy wants of them."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploykit.serving.lifecycle.version_folders import All, Latest, Specific, find_versions
from deploykit.serving.protocol.versions import number_of
from deploykit.transforms.common.errors import FileError
from tests.support import Containing, because, raises


@pytest.fixture
def base(tmp_path):
    def make(*names):
        for name in names:
            (tmp_path / name).mkdir()
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("1", 1),
        ("00000123", 123),
        ("-1", -1),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("9" * 5000, None),
        ("0" * 5000, None),
        ("1.0", None),
        ("1_000", None),
        ("0x10", None),
        ("v1", None),
        ("1-", None),
        (" 1", None),
        ("1\n", None),
        ("", None),
        ("+", None),
        ("\u0661", None),  # a digit, but not of ASCII
        (".tmp-1", None),
    ],
)
def test_a_version_is_a_name_that_is_an_int64(name, number):
    assert number_of(name) == number


@given(st.integers(-(2**70), 2**70), st.integers(0, 12))
def test_leading_zeros_count_nothing(number, zeros):
    name = ("-" if number < 0 else "") + "0" * zeros + str(abs(number))
    assert number_of(name) == (number if -(2**63) <= number < 2**63 else None)


@pytest.mark.parametrize(
    ("policy", "numbers"),
    [
        (Latest(), [10]),
        (Latest(2), [9, 10]),
        (Latest(0), [10]),
        (Latest(99), [1, 2, 9, 10]),
        (All(), [1, 2, 9, 10]),
        (Specific((2, 9)), [2, 9]),
    ],
)
def test_policies(base, policy, numbers):
    found = find_versions(base("1", "002", "9", "10", "x", ".tmp-11"), policy)
    assert list(found.versions) == numbers
    assert all(folder.is_dir() for folder in found.versions.values())
    assert not found.warnings


def test_a_named_version_that_is_missing_is_told(base):
    folder = base("1", "2")
    found = find_versions(folder, Specific((2, 7, 5, 7)))
    assert list(found.versions) == [2]
    assert found.warnings == tuple(
        f"{folder}: it contains no version {number}, which the policy names" for number in (5, 7)
    )


def test_a_policy_that_names_nothing_is_told(base):
    folder = base("1")
    found = find_versions(folder, Specific(()))
    assert not found.versions
    assert found.warnings == (because("policy-names-none", folder=folder),)


def test_two_names_of_one_number(base):
    folder = base("1", "01", "001", "2")
    found = find_versions(folder, All())
    assert found.versions == {1: folder / "1", 2: folder / "2"}
    assert found.warnings == (
        because("version-twice", folder=folder / "001", other=folder / "01", version=1),
        because("version-twice", folder=folder / "01", other=folder / "1", version=1),
    )


def test_a_file_is_no_version_and_a_link_to_a_folder_is(base):
    folder = base("1", "there")
    (folder / "3").write_text("")
    (folder / "2").symlink_to(folder / "there")
    (folder / "4").symlink_to(folder / "nowhere")
    (folder / "5").symlink_to(folder / "5")
    found = find_versions(folder, Latest())
    assert list(found.versions) == [2]
    assert found.warnings == tuple(Containing(f"{folder / name}: ") for name in "345")


def test_an_empty_base_path_is_no_error_but_told(base):
    folder = base("x")
    found = find_versions(folder, Latest())
    assert not found.versions
    assert found.warnings == (
        because("base-path-without-version", folder=folder, example=folder / "1"),
    )


@pytest.mark.parametrize("what", ["missing", "file"])
def test_a_base_path_that_cannot_be_listed(tmp_path, what):
    path = tmp_path / what
    if what == "file":
        path.write_text("")
    with raises(FileError, "base-path-expected", source=path):
        find_versions(path, Latest())


def test_a_base_path_that_no_path_can_be():
    with raises(FileError, "base-path-expected", reason="embedded null byte"):
        find_versions(Path("/models\0"), Latest())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list everything")
def test_folders_that_cannot_be_looked_into(base):
    folder = base("1")
    folder.chmod(0o444)
    try:
        assert not find_versions(folder, Latest()).versions
    finally:
        folder.chmod(0o755)
