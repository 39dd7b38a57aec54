"""Compiled graphs between starts: whole or not at all, bounded, and nobody else's."""

import os
from pathlib import Path

import pytest

from deploykit.transforms.engines.compiled_cache import (
    VARIABLE,
    CompiledCache,
    CompiledGraph,
    key_of,
)
from tests.support import shows

KEY = "0" * 64
GRAPH = CompiledGraph(frozenset({"x", "größe"}), bytes(range(256)) * 8)


@pytest.fixture
def cache(tmp_path):
    return CompiledCache(tmp_path / "a" / "cache", most_bytes=10_000)


def files(cache) -> list[Path]:
    return sorted(cache._folder.iterdir())


def test_what_is_put_is_got_and_nothing_else(cache):
    assert cache.get(KEY) is None
    cache.put(KEY, GRAPH)
    assert cache.get(KEY) == GRAPH
    assert cache.get("other") is None
    assert [path.name for path in files(cache)] == [f"{KEY}.blob"]


@pytest.mark.parametrize("change", ["cut", "empty", "flip", "longer"])
@pytest.mark.parametrize("place", [0, 0.02, 0.3, 0.99])
def test_a_damaged_file_is_removed(cache, change, place, caplog):
    cache.put(KEY, GRAPH)
    (path,) = files(cache)
    content = bytearray(path.read_bytes())
    at = int(place * len(content))
    if change == "flip":
        content[at] ^= 1
    path.write_bytes(
        {"cut": content[:at], "empty": b"", "flip": content, "longer": content + b"x"}[change]
    )
    assert cache.get(KEY) is None
    assert shows(caplog.text, "cache-damaged")
    assert files(cache) == []
    cache.put(KEY, GRAPH)
    assert cache.get(KEY) == GRAPH


def test_a_file_under_the_name_of_another_key_is_removed(cache, caplog):
    other = CompiledGraph(GRAPH.needed, GRAPH.blob[::-1])
    cache.put(KEY, GRAPH)
    cache.put("1" * 64, other)
    one, two = files(cache)
    content = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(content)
    assert [cache.get(KEY), cache.get("1" * 64)] == [None, None]
    assert shows(caplog.text, "cache-damaged")
    assert files(cache) == []


def test_those_unused_for_longest_go_first(cache):
    keys = [str(number) * 64 for number in range(5)]
    for number, key in enumerate(keys[:4]):
        cache.put(key, GRAPH)
        os.utime(cache._folder / f"{key}.blob", (number, number))
    assert cache.get(keys[0]) == GRAPH  # used now
    cache.put(keys[4], GRAPH)
    assert {path.stem for path in files(cache)} == {keys[0], *keys[2:]}
    assert sum(path.stat().st_size for path in files(cache)) <= 10_000


def test_files_of_others_stay_and_do_not_count(cache):
    cache.put(KEY, GRAPH)
    others = {"thesis.odt": 9_000, f"{KEY[1:]}.blob": 9_000, "tmpnew.partial": 10}
    for name, size in others.items():
        (cache._folder / name).write_bytes(bytes(size))
        os.utime(cache._folder / name, (1, 1) if size > 10 else None)
    left = cache._folder / "tmpold.partial"
    left.write_bytes(b"x")
    os.utime(left, (1, 1))
    (cache._folder / ("f" * 64 + ".blob")).mkdir()
    for number in range(1, 9):
        cache.put(str(number) * 64, GRAPH)
    found = {path.name for path in files(cache)}
    assert others.keys() <= found
    assert left.name not in found
    assert len(found & {f"{number * 64}.blob" for number in "12345678"}) == 4


def test_graphs_that_ended_a_process_are_not_loaded_again(cache):
    cache.put(KEY, GRAPH)
    with cache.loading("version"):
        pass
    with cache.loading("version"), pytest.raises(KeyError), cache.loading("version"):
        raise AssertionError("another process is still loading it, or has died of it")
    with cache.loading("version"):
        pass
    assert [path.stem for path in files(cache)] == [KEY]


def test_a_graph_above_the_bound_is_not_kept(cache):
    cache.put(KEY, CompiledGraph(frozenset(), bytes(10_001)))
    assert cache.get(KEY) is None


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_can_write_is_not_used(cache, mode):
    cache.put(KEY, GRAPH)
    cache._folder.chmod(mode)
    assert cache.get(KEY) is None
    cache.put("new", GRAPH)
    assert [path.stem for path in files(cache)] == [KEY]
    cache._folder.chmod(0o755)
    assert cache.get(KEY) == GRAPH


def test_where_nothing_can_be_written_nothing_is_kept(tmp_path):
    (tmp_path / "file").write_text("")
    cache = CompiledCache(tmp_path / "file" / "cache")
    cache.put(KEY, GRAPH)
    assert cache.get(KEY) is None


def test_the_variable_names_the_folder_or_turns_the_cache_off(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert CompiledCache.of_user()._folder == tmp_path / "openvino"
    monkeypatch.setenv(VARIABLE, "")
    assert CompiledCache.of_user() is None
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert CompiledCache.of_user()._folder == tmp_path / "deploykit" / "openvino"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert CompiledCache.of_user()._folder == tmp_path / ".cache" / "deploykit" / "openvino"


def test_a_home_may_be_written_as_users_do_and_other_paths_are_absolute(
    monkeypatch, tmp_path, caplog
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(VARIABLE, "~/kept")
    assert CompiledCache.of_user()._folder == tmp_path / "kept" / "openvino"
    monkeypatch.setenv(VARIABLE, "kept")
    assert CompiledCache.of_user() is None
    assert shows(caplog.text, "cache-path-relative", path="kept")


def test_each_fact_changes_the_key():
    keys = {
        key_of(graph, facts)
        for graph in (b"a", b"b")
        for facts in ({}, {"threads": 1}, {"threads": 2}, {"streams": 1})
    }
    assert len(keys) == 8
    assert key_of(b"a", {"x": 1, "y": 2}) == key_of(b"a", {"y": 2, "x": 1})
