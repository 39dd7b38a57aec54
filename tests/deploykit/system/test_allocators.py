"""Allocators: what a process starts with to have one, whether it is here, and whether it took."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from deploykit.system import allocators
from deploykit.system.allocators import (
    ALLOCATORS,
    LIBRARIES,
    held,
    in_force,
    is_tuned,
    lacking,
    library_here,
    variables,
)
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.runtime.child_process import call
from tests.deploykit.system.stand_in import stands_in
from tests.support import Containing, raises

ELF = b"\x7fELF\x02\x01\x01" + bytes(11) + b"\x3e\x00"  # 64 bits, x86


@pytest.fixture
def nothing_installed(monkeypatch):
    monkeypatch.setattr(allocators, "_CACHE", ())
    monkeypatch.setattr(allocators, "_FOLDERS", ())
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    library_here.cache_clear()
    yield
    library_here.cache_clear()


@pytest.mark.parametrize(
    ("given", "after"),
    [
        ({}, "T"),
        ({"LD_PRELOAD": ""}, "T"),
        ({"LD_PRELOAD": "/a/libfake.so"}, "T:/a/libfake.so"),
        ({"LD_PRELOAD": "/a/one.so  two.so:three.so"}, "T:/a/one.so:two.so:three.so"),
        ({"LD_PRELOAD": "T:/a/one.so"}, "T:/a/one.so"),
    ],
)
def test_what_the_user_has_loaded_in_front_stays(given, after, monkeypatch):
    monkeypatch.setattr(allocators, "library_here", lambda: "T")
    once = variables("tcmalloc", given)
    assert once == {"LD_PRELOAD": after}
    assert variables("tcmalloc", once) == once


@pytest.mark.parametrize(
    ("given", "after"),
    [
        ({}, "glibc.malloc.hugetlb=1"),
        ({"GLIBC_TUNABLES": "glibc.pthread.rseq=0"},
         "glibc.pthread.rseq=0:glibc.malloc.hugetlb=1"),
        ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=2:glibc.a.b=c"},
         "glibc.a.b=c:glibc.malloc.hugetlb=1"),
    ],
)  # fmt: skip
def test_what_the_user_has_tuned_stays(given, after):
    once = variables("huge-pages", given)
    assert once == {"GLIBC_TUNABLES": after}
    assert variables("huge-pages", once) == once


@pytest.mark.parametrize(
    ("given", "by", "tuned"),
    [
        ({}, (), False),
        ({"LD_PRELOAD": "/a/libfaketime.so.1", "GLIBC_TUNABLES": "glibc.pthread.rseq=0"}, (),
         False),
        ({"LD_PRELOAD": "libx.so /usr/lib/libjemalloc.so.2"}, ("LD_PRELOAD",), False),
        ({"LD_PRELOAD": "libtcmalloc_minimal.so.4"}, ("LD_PRELOAD",), False),
        ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}, ("GLIBC_TUNABLES",), False),
        ({"GLIBC_TUNABLES": "glibc.malloc.arena_max=1"}, ("GLIBC_TUNABLES",), True),
    ],
)  # fmt: skip
def test_who_has_chosen_already(given, by, tuned):
    assert (held(given), is_tuned(given)) == (by, tuned)


def test_without_a_library_its_name_and_package_are_said(nothing_installed):
    assert library_here() == ""
    assert lacking("tcmalloc") == (
        Containing(
            "libtcmalloc_minimal.so.4 or libtcmalloc.so.4",
            "installed (Debian and",
            "libtcmalloc-minimal4)",
        )
    )


def test_a_library_for_this_processor_is_found_and_no_other(nothing_installed, monkeypatch,
                                                            tmp_path):  # fmt: skip
    other, old, own = (tmp_path / name for name in ("other", "old", "own"))
    for folder, first in ((other, ELF[:4] + b"\x01" + ELF[5:]), (old, b"INPUT(x)"), (own, ELF)):
        folder.mkdir()
        (folder / LIBRARIES[0]).write_bytes(first)
    program = tmp_path / "python"
    program.write_bytes(ELF)
    monkeypatch.setattr(allocators, "_PROGRAM", program)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{other}::{old}")
    assert library_here() == ""
    library_here.cache_clear()
    monkeypatch.setattr(allocators, "_FOLDERS", (str(own),))
    assert library_here() == str(own / LIBRARIES[0])
    assert lacking("tcmalloc") == ""


def test_what_the_loader_knows_comes_first(nothing_installed, monkeypatch, tmp_path):
    places = [tmp_path / "a b" / LIBRARIES[1], tmp_path / "c" / LIBRARIES[0]]
    for path in places:
        path.parent.mkdir()
        shutil.copy(sys.executable, path)
    listed = "".join(f"\t{path.name} (libc6,x86-64) => {path}\n" for path in places)
    program = tmp_path / "ldconfig"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n2 libs found\n{listed}END\n")
    program.chmod(0o755)
    monkeypatch.setattr(allocators, "_CACHE", (str(tmp_path / "none"), str(program)))
    assert library_here() == str(places[1])  # the small one, wherever it lies
    library_here.cache_clear()
    places[1].unlink()
    assert library_here() == str(places[0])


@pytest.mark.parametrize(
    ("libc", "mode", "why"),
    [
        ("glibc 2.36", "always [madvise] never", ""),
        ("glibc 2.35", "always [madvise] never", ""),
        ("glibc 2.34", "always [madvise] never", "it needs glibc 2.35; found glibc 2.34"),
        ("glibc 3.0", "[always] madvise never", "uses them for all processes already"),
        ("glibc 2.40.9000", "always madvise [never]", "the kernel disables them"),
        ("glibc 2.40", None, "does not report whether"),
        ("musl 1.2", "always [madvise] never", "it needs glibc 2.35; found musl 1.2"),
        (None, "always [madvise] never", "it needs glibc 2.35"),
    ],
)
def test_who_gives_huge_pages(libc, mode, why, monkeypatch, tmp_path):
    file = tmp_path / "enabled"
    if mode is not None:
        file.write_text(f"{mode}\n")
    monkeypatch.setattr(allocators, "_MODE", file)
    monkeypatch.setattr(allocators.os, "confstr", lambda name: libc)
    found = lacking("huge-pages")
    assert why in found
    assert bool(found) == bool(why)


def test_the_c_library_reads_what_is_set():
    """The loader itself lists what it has understood."""
    libc = subprocess.run(["ldd", sys.executable], capture_output=True, text=True).stdout
    loader = re.search(r"(/\S*ld-linux\S*)", libc)
    if loader is None:
        pytest.skip("the loader of this machine is not glibc's")
    listed = [
        subprocess.run([loader[1], "--list-tunables"], capture_output=True, text=True,
                       env={**os.environ, **added}).stdout
        for added in ({}, variables("huge-pages", {}))
    ]  # fmt: skip
    values = [re.search(r"glibc.malloc.hugetlb: (\S+)", text) for text in listed]
    if None in values:
        pytest.skip("this glibc is too old")
    assert [int(each[1], 16) for each in values] == [0, 1]


def test_which_libraries_are_in_force(tmp_path):
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r-xp 00000000 08:01 12 /usr/lib/libtcmalloc_minimal.so.4.5.10\n"
        "7f02-7f03 r--p 00000000 08:01 12 /usr/lib/libtcmalloc_minimal.so.4.5.10\n"
        "7f04-7f05 r-xp 00000000 08:01 13 /srv/jemalloc notes/libc.so.6\n"
        "7f06-7f07 rw-p 00000000 00:00 0 \n"
        "7f08-7f09 rw-p 00000000 00:00 0 [heap]\n"
    )
    assert in_force(maps) == ("libtcmalloc_minimal.so.4.5.10",)


@pytest.mark.slow
def test_a_process_has_what_it_was_started_with(tmp_path):
    library = stands_in(tmp_path)
    check = "deploykit.system.allocators:check_in_force"
    assert call(check, "tcmalloc", forced={"LD_PRELOAD": str(library)}) is None
    names = call("deploykit.system.allocators:in_force", forced={"LD_PRELOAD": str(library)})
    assert library.name in names
    assert call(check, "huge-pages") is None
    with raises(GraphError, "tcmalloc-not-loaded"):
        call(check, "tcmalloc", forced={"LD_PRELOAD": None})


@pytest.mark.slow
@pytest.mark.parametrize("name", ALLOCATORS)
def test_what_is_here_takes_effect(name):
    """Where a machine has an allocator, a process that starts with it runs, and has it."""
    if lacking(name):
        pytest.skip(lacking(name))
    call("deploykit.system.allocators:check_in_force", name, forced=variables(name, {}))
