"""A folder takes the place of another one in one step, also where a process dies meanwhile."""

import os
import signal
import sys

import pytest

from deploykit.storage import swap_folders
from deploykit.storage.swap_folders import can_swap, link_missing, next_to, recover, swap
from deploykit.transforms.common.errors import FileError
from tests.support import Containing, raises


def folder(path, **files):
    path.mkdir()
    for name, text in files.items():
        (path / name).write_text(text)
    return path


def content(path):
    return {each.name: each.read_text() for each in path.iterdir()}


@pytest.fixture(params=["exchange", "two renames"])
def kernel(request, monkeypatch):
    if request.param == "two renames":
        monkeypatch.setattr(swap_folders, "_exchange", lambda first, second: False)


def test_the_new_folder_takes_the_name_and_the_old_one_goes(tmp_path, kernel):
    old, new = folder(tmp_path / "a", x="old", y="old"), folder(next_to(tmp_path / "a", "n"), x="1")
    swap(new, old)
    assert content(old) == {"x": "1"}
    assert os.listdir(tmp_path) == ["a"]


def test_a_link_to_a_folder_stays_one(tmp_path, kernel):
    folder(tmp_path / "real", x="old")
    link = tmp_path / "link"
    link.symlink_to("real")
    swap(folder(next_to(link, "n"), x="new"), link)
    assert link.is_symlink()
    assert content(link) == content(tmp_path / "real") == {"x": "new"}


def killed_at(event, act):
    """Run an act in a child that is killed at its n-th file event; return whether it was."""
    child = os.fork()
    if child:
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    left = event

    def hook(name, _):
        nonlocal left
        if name in ("os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "open",
                    "ctypes.dlopen", "ctypes.dlsym"):  # fmt: skip
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        sys.addaudithook(hook)
        act()
    finally:
        os._exit(0)


@pytest.mark.sampled
def test_a_process_that_dies_at_any_moment_leaves_the_old_or_the_new(tmp_path, kernel):
    found, event = set(), 0
    while True:
        event += 1
        home = folder(tmp_path / str(event))
        path = folder(home / "a", x="old", y="old")
        new = folder(next_to(path, "n"), x="new", z="new")
        was_killed = killed_at(event, lambda new=new, path=path: swap(new, path))
        recover(path)
        found.add(tuple(sorted(content(path).values())))
        assert not next_to(path, "old").exists()
        if not was_killed:
            break
    assert event > 5
    assert found == {("old", "old"), ("new", "new")}


def test_what_cannot_be_renamed_stays(tmp_path, monkeypatch):
    old, new = folder(tmp_path / "a", x="old"), folder(tmp_path / "b", x="new")

    def refuse(*_):
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(swap_folders, "_exchange", refuse)
    with raises(FileError, "folder-not-replaced", reason=Containing("Device or resource")):
        swap(new, old)
    assert (content(old), content(new)) == ({"x": "old"}, {"x": "new"})


def test_what_is_missing_is_linked_and_nothing_replaced(tmp_path):
    source, target = folder(tmp_path / "a", x="1", y="1", z="1"), folder(tmp_path / "b", x="2")
    folder(source / "inner", w="1")
    link_missing(source, target, frozenset(("z",)))
    assert {each.name for each in target.iterdir()} == {"x", "y", "inner"}
    assert (target / "x").read_text() == "2"
    assert (target / "y").samefile(source / "y")
    assert content(target / "inner") == {"w": "1"}


def test_a_file_system_without_second_names(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    source = folder(tmp_path / "a", x="1")
    link_missing(source, tmp_path / "b")
    assert content(tmp_path / "b") == {"x": "1"}
    assert not (tmp_path / "b" / "x").samefile(source / "x")


def test_a_mount_point_stays_where_it_is(tmp_path, monkeypatch):
    path = folder(tmp_path / "a")
    assert can_swap(path)
    monkeypatch.setattr(os.path, "ismount", lambda each: True)
    assert not can_swap(path)
