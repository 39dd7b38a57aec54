"""What OpenVINO compiled at an earlier start: the same answers, without another trial."""

import json
import logging
import os

import pytest

from deploykit.serving.execution.engines import trial
from deploykit.serving.execution.engines.engine import ALL, Loading
from deploykit.serving.execution.engines.open_version import open_version
from deploykit.transforms.engines.compiled_cache import VARIABLE
from deploykit.transforms.engines.engine_folder import FOLDER, MANIFEST
from tests.serving.engine_versions import NAME, X, alone, needs_openvino
from tests.support import shows

pytestmark = needs_openvino


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "openvino"


@pytest.fixture
def trials(monkeypatch):
    found = []
    call = trial.call

    def counted(function, *arguments, **options):
        found.append(function)
        return call(function, *arguments, **options)

    monkeypatch.setattr(trial, "call", counted)
    return found


def answers(folder, **loading):
    servable = open_version(folder, "m", 1, Loading(**{"slots": 2, **loading}))
    try:
        return [
            servable.run(NAME, {"x": X[:rows]}, ["y"], seconds=60.0, slot=slot)["y"].tolist()
            for rows in (0, 1, 3)
            for slot in (1, ALL)
        ]
    finally:
        servable.close()


def test_the_second_start_tries_nothing_and_answers_the_same(cache, trials, tmp_path, caplog):
    caplog.set_level(logging.INFO, "deploykit")
    folder = alone(tmp_path / "m")
    first = answers(folder)
    assert len(trials) == 1
    assert len(list(cache.glob("*.blob"))) == 2  # for calls side by side, and for one alone
    assert answers(folder) == first
    assert len(trials) == 1
    assert shows(caplog.text, "graphs-from-cache")


@pytest.mark.sampled
@pytest.mark.parametrize("loading", [{"slots": 1}, {"intra_op": 2}, {"allow_ops": ("ReadFile",)}])
def test_other_settings_are_tried_anew(cache, trials, tmp_path, loading):
    folder = alone(tmp_path / "m")
    first = answers(folder)
    assert answers(folder, **loading) == first
    assert len(trials) == 2


@pytest.mark.sampled
def test_another_manifest_is_tried_anew(cache, trials, tmp_path):
    folder = alone(tmp_path / "m")
    first = answers(folder)
    manifest = folder / FOLDER / MANIFEST
    document = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(document))  # the same facts in other bytes
    assert answers(folder) == first
    assert len(trials) == 2


@pytest.mark.sampled
def test_a_damaged_file_is_tried_and_compiled_anew(cache, trials, tmp_path, caplog):
    folder = alone(tmp_path / "m")
    first = answers(folder)
    blob = next(iter(cache.glob("*.blob")))
    content = bytearray(blob.read_bytes())
    content[-1] ^= 1
    blob.write_bytes(content)
    assert answers(folder) == first
    assert len(trials) == 2
    assert shows(caplog.text, "cache-damaged")
    assert answers(folder) == first
    assert len(trials) == 2


@pytest.mark.sampled
def test_a_blob_that_openvino_refuses_is_compiled_anew(cache, trials, tmp_path, monkeypatch):
    folder = alone(tmp_path / "m")
    first = answers(folder)
    get = trial.CompiledCache.get

    def other(self, key):
        found = get(self, key)
        return found and type(found)(found.needed, b"no blob of OpenVINO" + found.blob)

    monkeypatch.setattr(trial.CompiledCache, "get", other)
    assert answers(folder) == first
    assert len(trials) == 2


@pytest.mark.sampled
def test_graphs_that_ended_a_process_are_tried_anew(cache, trials, tmp_path, monkeypatch):
    folder = alone(tmp_path / "m")
    first = answers(folder)
    monkeypatch.setattr(trial.CachedGraphs, "load", lambda *_: os._exit(3))
    if not (child := os.fork()):
        answers(folder)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    monkeypatch.undo()
    monkeypatch.setenv(VARIABLE, str(cache.parent))
    assert answers(folder) == first
    assert not list(cache.glob("*.loading"))


def test_what_departs_is_never_kept(cache, tmp_path):
    folder = alone(tmp_path / "m", answered=3.0)
    servable = open_version(folder, "m", 1, Loading(slots=2))  # TensorFlow computes it
    servable.close()
    assert not list(cache.glob("*.blob"))
