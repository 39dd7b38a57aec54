"""Which engine computes a version: the one that it was written for, only where that is right."""

import json
import logging
import os
import re
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from deploykit.serving.execution.engines import open_version as opening
from deploykit.serving.execution.engines.engine import ALL, Loading
from deploykit.serving.execution.engines.open_version import open_version
from deploykit.serving.protocol.errors import ServingError
from deploykit.transforms.common.errors import Error, GraphError
from deploykit.transforms.engines.engine_folder import FOLDER, write
from deploykit.transforms.engines.engines import AUTO, OPENVINO
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from tests.serving.engine_versions import NAME, X, alone, content, mixed, needs_openvino
from tests.serving.small_models import half_plus
from tests.support import Containing, because, lines_with, raises, says, shows

TCMALLOC = Path("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4")


def opened(folder, **loading):
    return open_version(folder, "m", 1, Loading(slots=2, **loading))


def answer(servable, x=X, **more):
    return servable.run(NAME, {"x": x}, ["y"], **more)["y"]


@needs_openvino
def test_each_signature_has_its_engine(tmp_path, caplog):
    caplog.set_level(logging.INFO, "deploykit")
    servable = opened(mixed(tmp_path / "m"))
    try:
        engines = {name: each.name for name, each in servable._engines.items()}
        assert engines == {
            NAME: "openvino", "classify_x_to_y": "openvino", "regress_x_to_y": "openvino"
        }  # fmt: skip
        assert [each.split()[0] for each in servable.engines] == ["openvino"]
        by_tensorflow = Containing("'classify_x_to_y'")
        assert shows(caplog.text, "processing-in-tensorflow", signatures=by_tensorflow)
        assert "OpenVINO" in caplog.text
        for rows in (0, 1, 3, 1000):
            for slot in (1, ALL):
                x = np.arange(rows, dtype=np.float32).reshape(rows, 1)
                assert answer(servable, x, slot=slot, seconds=60.0).tolist() == (x / 2 + 2).tolist()
        with raises(ServingError, "signature-argument", wanted="float", given="int32") as error:
            answer(servable, X.astype(np.int32))
        assert error.value.status == "INVALID_ARGUMENT"
        with raises(ServingError, "signature-shape", shape=[3]):
            answer(servable, X.ravel())
    finally:
        servable.close()


@pytest.mark.sampled
@needs_openvino
def test_what_is_not_right_is_computed_by_tensorflow_or_refused(tmp_path, caplog):
    folder = alone(tmp_path / "m", answered=2.5)
    words = "TensorFlow: output 'y': error 0.143"
    with pytest.raises(GraphError, match=words):
        opened(folder, engine=OPENVINO)
    assert not caplog.text
    servable = opened(folder)
    assert len(lines_with(caplog.text, "falls-back")) == 1
    assert re.search(words, caplog.text)
    assert answer(servable).tolist() == (X / 2 + 2).tolist()
    servable.close()


def damaged(folder):
    graph = folder / FOLDER / "graph.pb"
    graph.write_bytes(graph.read_bytes()[:-1])


def half_written(folder):
    (folder / FOLDER / "manifest.json").unlink()


def newer(folder):
    manifest = folder / FOLDER / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 99'))


@pytest.mark.sampled
@needs_openvino
@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (damaged, says("engine-file-replaced")),
        (half_written, "manifest.json"),
        (newer, says("format-unsupported", got=99)),
    ],
)
def test_a_folder_that_is_not_whole(tmp_path, caplog, harm, words):
    folder = alone(tmp_path / "m")
    harm(folder)
    with pytest.raises(GraphError, match=words):
        opened(folder, engine=OPENVINO)
    servable = opened(folder)
    assert re.search(words, caplog.text)
    assert [each.split()[0] for each in servable.engines] == ["tensorflow"]
    servable.close()


@needs_openvino
def test_a_folder_for_another_version(tmp_path):
    half_plus(tmp_path / "m", 2.0)
    folder = tmp_path / "m" / "00000123"
    each = content()
    signature = each.signatures.pop(NAME)
    each.signatures["other"] = signature
    each.bars["other"] = each.bars.pop(NAME)
    each.answers[:] = [type(a)("other", a.batch, a.feeds, a.expected) for a in each.answers]
    write(folder, each)
    with raises(GraphError, "engine-signature-missing", name="other"):
        opened(folder, engine=OPENVINO)


@needs_openvino
def test_a_graph_that_acts_on_files_never_runs(tmp_path):
    read = Node("file", "ReadFile", ("name",)), Node.constant("name", np.array(b"/etc/passwd"))
    folder = alone(tmp_path / "m", more=read)
    with raises(
        Error, "acts-beyond", op="ReadFile", what=Containing("ReadFile", because("effect-files"))
    ):
        opened(folder, engine=OPENVINO)


@needs_openvino
def test_what_openvino_does_not_know_is_named(tmp_path):
    odd = Node("odd", "Digamma", ("x",)).with_attrs(T=DType("float32"))
    more = odd, Node("z", "Identity", ("odd",)).with_attrs(T=DType("float32"))
    half_plus(tmp_path / "m", 2.0)
    folder = tmp_path / "m" / "00000123"
    each = content(more=more)
    tensors = each.signatures[NAME].outputs
    tensors["y"] = type(tensors["y"])("z:0", "float32", (-1, 1))
    write(folder, each)
    with raises(GraphError, "openvino-unknown-op", op="Digamma"):
        opened(folder, engine=OPENVINO)


@needs_openvino
@pytest.mark.skipif(not TCMALLOC.exists(), reason="tcmalloc is missing")
def test_a_process_that_dies_of_openvino_is_not_the_server(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("LD_PRELOAD", str(TCMALLOC))
    servable = opened(alone(tmp_path / "m"))
    engines = [each.split()[0] for each in servable.engines]
    servable.close()
    assert engines == (
        ["tensorflow"] if shows(caplog.text, "child-died", runs="OpenVINO") else ["openvino"]
    )


def test_only_what_is_asked_for_is_looked_at(tmp_path):
    folder = alone(tmp_path / "m")
    damaged(folder)
    servable = opened(folder, engine="tensorflow")
    assert answer(servable).tolist() == (X / 2 + 2).tolist()
    servable.close()
    half_plus(tmp_path / "n", 2.0)
    with raises(GraphError, "engine-folder-missing", folder="assets.extra/deploykit.engine"):
        opened(tmp_path / "n" / "00000123", engine=OPENVINO)


def test_what_the_machine_lacks_is_said_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(opening, "lacking", lambda engine: "it is not here")
    monkeypatch.setattr(opening, "_told", threading.Lock())
    folders = [alone(tmp_path / name) for name in "abc"]
    for number, folder in enumerate(folders):
        servable = opened(folder, tells=number > 0)
        assert answer(servable).tolist() == (X / 2 + 2).tolist()
        servable.close()
    assert len(lines_with(caplog.text, "runs-in-place")) == 1
    assert os.fspath(folders[1]) in caplog.text


def replaced(folder, tmp_path):
    """Put another model in the place of a version's."""
    half_plus(tmp_path / "other", 7.0)
    shutil.rmtree(folder / "variables", ignore_errors=True)
    shutil.copytree(tmp_path / "other" / "00000123", folder, dirs_exist_ok=True)


def with_other_variables(folder, tmp_path):
    """Put other variables under a version's graph; TensorFlow reads them by their index."""
    half_plus(tmp_path / "other", 7.0)
    shutil.copytree(
        tmp_path / "other" / "00000123" / "variables", folder / "variables", dirs_exist_ok=True
    )


def copied(folder, tmp_path):
    """Put the engine folder of another export into a version."""
    shutil.rmtree(folder / FOLDER)
    shutil.copytree(alone(tmp_path / "other", add=7.0) / FOLDER, folder / FOLDER)


def damaged_hashes(folder, tmp_path):
    manifest = folder / FOLDER / "manifest.json"
    document = json.loads(manifest.read_text()) | {"version_files": ["saved_model.pb"]}
    manifest.write_text(json.dumps(document))


@pytest.mark.sampled
@needs_openvino
@pytest.mark.parametrize("engine", [AUTO, OPENVINO])
@pytest.mark.parametrize("harm", [replaced, with_other_variables, copied, damaged_hashes])
def test_an_engine_folder_of_another_version_is_ignored(tmp_path, caplog, harm, engine):
    folder = alone(tmp_path / "m")
    harm(folder, tmp_path)
    servable = opened(folder, engine=engine)
    (warning,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert str(folder / FOLDER / "manifest.json") in warning
    name = "variables/variables.index" if harm is with_other_variables else "saved_model.pb"
    assert str(folder / name) in warning
    assert [each.split()[0] for each in servable.engines] == ["tensorflow"]
    assert (
        answer(servable).tolist()
        == (X / 2 + (7 if harm in (replaced, with_other_variables) else 2)).tolist()
    )
    servable.close()


@needs_openvino
def test_an_engine_folder_without_hashes_is_used_with_a_warning(tmp_path, caplog):
    folder = alone(tmp_path / "m")
    manifest = folder / FOLDER / "manifest.json"
    document = json.loads(manifest.read_text())
    del document["version_files"]
    manifest.write_text(json.dumps(document))
    (folder / "assets.extra" / "deploykit.json").write_text('{"saved_model": {"sha256": "ab"}}')
    opened(folder).close()
    assert shows(
        caplog.text, "engine-for-other-version", manifest=manifest, file=folder / "saved_model.pb"
    )
    (folder / "assets.extra" / "deploykit.json").unlink()
    servable = opened(folder)
    assert len(lines_with(caplog.text, "unbound-engine", file="saved_model.pb")) == 1
    assert [each.split()[0] for each in servable.engines] == ["openvino"]
    assert answer(servable).tolist() == (X / 2 + 2).tolist()
    servable.close()
