"""Compiled graphs between starts: whole or not at all, bounded, and nobody else's."""

import os
from pathlib import Path

import pytest

from deploykit.transforms.core.engines.compiled_cache import (
    VARIABLE,
    CompiledCache,
    CompiledGraph,
    key_of,
)

GRAPH = CompiledGraph(frozenset({"x", "größe"}), bytes(range(256)) * 8)


@pytest.fixture
def cache(tmp_path):
    return CompiledCache(tmp_path / "a" / "cache", most_bytes=10_000)


def files(cache) -> list[Path]:
    return sorted(cache._folder.iterdir())


def test_what_is_put_is_got_and_nothing_else(cache):
    assert cache.get("key") is None
    cache.put("key", GRAPH)
    assert cache.get("key") == GRAPH
    assert cache.get("other") is None
    assert [path.name for path in files(cache)] == ["key.blob"]


@pytest.mark.parametrize("change", ["cut", "empty", "flip", "longer"])
@pytest.mark.parametrize("place", [0, 0.02, 0.3, 0.99])
def test_a_damaged_file_is_removed(cache, change, place, caplog):
    cache.put("key", GRAPH)
    (path,) = files(cache)
    content = bytearray(path.read_bytes())
    at = int(place * len(content))
    if change == "flip":
        content[at] ^= 1
    path.write_bytes(
        {"cut": content[:at], "empty": b"", "flip": content, "longer": content + b"x"}[change]
    )
    assert cache.get("key") is None
    assert "is damaged and is removed" in caplog.text
    assert files(cache) == []
    cache.put("key", GRAPH)
    assert cache.get("key") == GRAPH


def test_those_unused_for_longest_go_first(cache):
    for number in range(4):
        cache.put(f"k{number}", GRAPH)
        os.utime(cache._folder / f"k{number}.blob", (number, number))
    assert cache.get("k0") == GRAPH  # used now
    cache.put("k4", GRAPH)
    assert {path.stem for path in files(cache)} == {"k0", "k2", "k3", "k4"}
    assert sum(path.stat().st_size for path in files(cache)) <= 10_000


def test_a_graph_above_the_bound_is_not_kept(cache):
    cache.put("key", CompiledGraph(frozenset(), bytes(10_001)))
    assert cache.get("key") is None


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_can_write_is_not_used(cache, mode):
    cache.put("key", GRAPH)
    cache._folder.chmod(mode)
    assert cache.get("key") is None
    cache.put("new", GRAPH)
    assert [path.stem for path in files(cache)] == ["key"]
    cache._folder.chmod(0o755)
    assert cache.get("key") == GRAPH


def test_where_nothing_can_be_written_nothing_is_kept(tmp_path):
    (tmp_path / "file").write_text("")
    cache = CompiledCache(tmp_path / "file" / "cache")
    cache.put("key", GRAPH)
    assert cache.get("key") is None


def test_the_variable_names_the_folder_or_turns_the_cache_off(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert CompiledCache.of_user()._folder == tmp_path
    monkeypatch.setenv(VARIABLE, "")
    assert CompiledCache.of_user() is None
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert CompiledCache.of_user()._folder == tmp_path / "deploykit" / "openvino"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert CompiledCache.of_user()._folder == tmp_path / ".cache" / "deploykit" / "openvino"


def test_each_fact_changes_the_key():
    keys = {
        key_of(graph, facts)
        for graph in (b"a", b"b")
        for facts in ({}, {"threads": 1}, {"threads": 2}, {"streams": 1})
    }
    assert len(keys) == 8
    assert key_of(b"a", {"x": 1, "y": 2}) == key_of(b"a", {"y": 2, "x": 1})
