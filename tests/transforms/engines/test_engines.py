"""Engines by name, and what is written of their use."""

import json

import pytest

from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.engines import engines
from deploykit.transforms.engines.engines import EngineUse
from tests.support import raises, says


def test_a_use_is_read_as_it_was_written():
    use = EngineUse("openvino", "2026.4.1", "bf16", {"threads": 2})
    assert EngineUse.of(json.loads(json.dumps(document(use)))) == use


@pytest.mark.parametrize("document", [
    None, [], {}, {"engine": "openvino"}, {"engine": "other", "version": "1"},
    {"engine": "openvino", "version": 1},
    {"engine": "openvino", "version": "1", "precision": "f16"},
    {"engine": "openvino", "version": "1", "settings": {"threads": 0}},
    {"engine": "openvino", "version": "1", "settings": 3},
])  # fmt: skip
def test_what_is_no_use_is_refused(document):
    with raises(GraphError, "engine-not-said"):
        EngineUse.of(document)


def test_an_engine_that_is_not_there_is_refused_with_what_installs_it(monkeypatch):
    monkeypatch.setattr(engines, "is_installed", lambda name: False)
    with pytest.raises(GraphError, match=says("package-missing", extra="openvino")):
        engines.check_engine("openvino")
    with raises(GraphError, "not-one-of", got="tflite"):
        engines.check_engine("tflite")
