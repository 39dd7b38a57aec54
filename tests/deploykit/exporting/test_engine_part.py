"""What OpenVINO computes of a version: written where it was right, refused or left out by name."""

import json

import numpy as np
import pytest

import deploykit
from deploykit.exporting import engine_part
from deploykit.importers.graph_files import load_graph, save_graph
from deploykit.importers.metadata_file import with_engine
from deploykit.pipelines.int8 import codes_graph
from deploykit.serving.protocol.signatures import read_meta_graph
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import GraphError, VerificationError
from deploykit.transforms.engines import engines
from deploykit.transforms.engines.engine_folder import FOLDER, read
from deploykit.transforms.engines.engine_session import cut
from deploykit.transforms.engines.engines import EngineUse
from deploykit.transforms.engines.openvino_model import OpenVinoModel
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.runtime.differences import Answered, departure
from tests.loading import answers
from tests.support import Containing, raises, random, run, showing, shows
from tests.transforms.int8_nets import C, ranges_of
from tests.transforms.test_quantize_static import residual

pytest.importorskip("openvino")
pytestmark = pytest.mark.usefixtures("in_process")


def live(function, *shapes, dtype="float32"):
    import tensorflow as tf

    specs = [tf.TensorSpec(shape, dtype) for shape in shapes]
    return tf.function(function, input_signature=specs)


def doubled(x):
    return x * 2 + 1


def loop(x):
    import tensorflow as tf

    return tf.while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, y * 0.5 + x), [0, x])[1]


def assert_openvino_answers(folder):
    """Compute all that lies beside a version once more, as a server does."""
    content = read(folder)
    for name, signature in content.signatures.items():
        sides = [{alias: t.name for alias, t in side.items()}
                 for side in (signature.inputs, signature.outputs)]  # fmt: skip
        kinds = {t.name: (t.dtype, len(t.shape)) for t in signature.inputs.values()}
        fetched = list(sides[1].values())
        model = OpenVinoModel(*cut(GraphDef.FromString(content.graph_def), kinds, fetched), fetched)
        answered = []
        for each in content.answers:
            if each.signature == name:
                values = model.run({sides[0][alias]: a for alias, a in each.feeds.items()})
                found = dict(zip(sides[1], values, strict=True))
                answered.append(Answered(each.batch, each.expected, found))
        assert [each.batch for each in answered] == [3, 1, 0]
        assert departure(answered, content.bars[name]) == ""
    return content


def assert_tensorflow_answers(folder, content, close=1e-5):
    for each in content.answers:
        if each.batch:
            for found in answers(folder, each.signature, dict(each.feeds)):
                for alias, expected in each.expected.items():
                    error = np.abs(found[alias] - expected).max()
                    assert error <= close * np.abs(expected).max()


@pytest.fixture
def codes(tmp_path):
    """Return the file of a small net in codes, which was found right in OpenVINO."""
    graph, path = residual(), tmp_path / "net.ranges.json"
    feeds = [{name: random(2, 9, 8, C) for name in graph.inputs}]
    path.write_text(ranges_of(graph, feeds).text())
    made = codes_graph(graph, str(path))
    made.about = with_engine(made, EngineUse("openvino", "2025.1", settings={"threads": 2}))
    save_graph(made, tmp_path / "net.pb")
    return tmp_path / "net.pb"


@pytest.mark.sampled
def test_a_float_model_is_written_for_both(tmp_path):
    found = deploykit.export(live(doubled, (None, 3)), tmp_path, name="m", engine="openvino")
    content = assert_openvino_answers(found.folder)
    assert_tensorflow_answers(found.folder, content)
    assert document(found.engine)["signatures"] == ["serving_default"]
    assert content.use == EngineUse("openvino", engines.version_of("openvino"))
    assert found.bytes == sum(p.stat().st_size for p in found.folder.rglob("*") if p.is_file())


@pytest.mark.sampled
def test_tensorflow_alone_computes_what_is_exported_without_a_word(tmp_path):
    found = deploykit.export(live(doubled, (None, 3)), tmp_path, name="m")
    assert not (found.folder / FOLDER).exists()
    plain = document(found.engine)
    assert (plain["name"], plain["version"], plain["why"]) == ("tensorflow", None, "")
    assert found.engine.lines() == []


@pytest.mark.sampled
def test_a_graph_in_codes_is_fast_in_tensorflow_and_openvino(codes, tmp_path):
    found = deploykit.export(str(codes), tmp_path / "base")
    content = assert_openvino_answers(found.folder)
    ops = {node.op for node in read_meta_graph(found.folder).graph_def.node}
    assert any("Quantized" in op for op in ops)
    assert "FakeQuantWithMinMaxVars" not in ops
    beside = {node.op for node in GraphDef.FromString(content.graph_def).node}
    assert "FakeQuantWithMinMaxVars" in beside
    assert content.use.settings == {"threads": 2}
    assert_tensorflow_answers(found.folder, content, 0.1)
    assert all(bar.min_sqnr == 20 for bar in content.bars["serving_default"].values())


def test_its_8_bit_form_for_tensorflow_is_compared_with_the_codes(codes, tmp_path, monkeypatch):
    def other(graph):
        made = graph.copy()
        const = next(node for node in made if node.op == "Const" and node.name.endswith("steps"))
        made.replace(const, const.with_value(const.value * 2))
        return made

    monkeypatch.setattr(engine_part, "onednn_graph", other)
    with raises(VerificationError, "onednn-form-differs"):
        deploykit.export(str(codes), tmp_path / "base")
    assert not list(tmp_path.glob("base/*/*"))


def test_without_openvino_its_graph_is_not_written_and_the_reason_is_said(
    codes, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(engines, "is_installed", lambda name: False)
    found = deploykit.export(str(codes), tmp_path / "base")
    assert not (found.folder / FOLDER).exists()
    why = showing("package-missing", title="OpenVINO")
    assert shows(found.engine.why, "engine-not-compared-here", reason=why)
    assert found.engine.why in caplog.text
    with raises(GraphError, "engine-unavailable"):
        deploykit.export(str(codes), tmp_path / "base", engine="openvino")
    assert len(list(tmp_path.glob("base/*/*"))) == 1


@pytest.mark.parametrize(("function", "kind", "words"), [
    ("lgamma", GraphError, "op for Lgamma"),
    ("loop", VerificationError, "output 'output_0'"),
])  # fmt: skip
def test_what_is_not_right_is_an_error_or_left_to_tensorflow(tmp_path, function, kind, words):
    import tensorflow as tf

    model = live({"lgamma": tf.math.lgamma, "loop": loop}[function], (None, 3))
    with pytest.raises(kind, match=words):
        deploykit.export(model, tmp_path, name="m", engine="openvino")
    assert not list(tmp_path.glob("*/*"))
    found = deploykit.export(model, tmp_path, name="m", engine="auto")
    assert not (found.folder / FOLDER).exists()
    assert words in found.engine.lines()[0]


def test_an_engine_that_does_not_exist_is_refused(tmp_path):
    with raises(GraphError, "not-one-of", got="tflite"):
        deploykit.export(live(doubled, (None, 3)), tmp_path, name="m", engine="tflite")


def module(tmp_path):
    """Return a SavedModel with signatures of several inputs and outputs, one of them of texts."""
    import tensorflow as tf

    class Both(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((None, 3)), tf.TensorSpec((None, 3))])
        def sums(self, left, right):
            return {"total": left + right, "far": tf.abs(left - right)}

        @tf.function(input_signature=[tf.TensorSpec((None, 3))])
        def one(self, given):
            return {"twice": given * 2}

        @tf.function(input_signature=[tf.TensorSpec((None,), tf.string)])
        def texts(self, words):
            return {"lengths": tf.strings.length(words)}

    made = Both()
    signatures = {"serving_default": made.sums, "one": made.one, "texts": made.texts}
    tf.saved_model.save(made, str(tmp_path / "both"), signatures=signatures)
    return tmp_path / "both"


def test_signatures_that_openvino_cannot_compute_are_left_to_tensorflow(tmp_path):
    path = module(tmp_path)
    samples = {"left": random(5, 3), "right": random(5, 3)}
    found = deploykit.export(str(path), tmp_path / "base", engine="openvino", warmup=samples)
    content = assert_openvino_answers(found.folder)
    assert sorted(content.signatures) == ["one", "serving_default"]
    assert set(content.signatures["serving_default"].inputs) == {"left", "right"}
    assert set(content.bars["serving_default"]) == {"total", "far"}
    assert content.left == {"texts": Containing("'words'", " string")}
    plain = document(found.engine)
    assert plain["left_to_tensorflow"] == content.left
    fed = [each.feeds["left"] for each in content.answers
           if each.signature == "serving_default" and each.batch]  # fmt: skip
    assert all(any((row == s).all() for s in samples["left"]) for feed in fed for row in feed)
    assert_tensorflow_answers(found.folder, content)


@pytest.mark.sampled
def test_photos_are_decoded_by_tensorflow(tmp_path):
    def net(images):
        import tensorflow as tf

        return tf.reduce_mean(images, [1, 2])

    model = live(net, (None, 8, 8, 3))
    found = deploykit.export(
        model, tmp_path, name="m", engine="auto", preprocess="0..1", labels=["a", "b", "c"]
    )
    content = assert_openvino_answers(found.folder)
    assert list(content.signatures) == ["tensors"]
    assert content.left == {}
    assert sorted(found.engine.split) == ["classify", "pixels", "serving_default"]


def test_a_model_of_texts_alone_is_left_to_tensorflow(tmp_path):
    import tensorflow as tf

    model = live(tf.strings.length, (None,), dtype="string")
    with raises(GraphError, "openvino-no-signature"):
        deploykit.export(model, tmp_path, name="m", engine="openvino")


def test_answers_too_large_for_a_server_are_left_out(tmp_path, monkeypatch):
    model = live(doubled, (None, 100))
    monkeypatch.setattr(engine_part, "MAX_ANSWERS", 4000)
    found = deploykit.export(model, tmp_path, name="m", engine="openvino")
    assert [each.batch for each in read(found.folder).answers] == [1, 0]
    monkeypatch.setattr(engine_part, "MAX_ANSWERS", 400)
    with raises(GraphError, "engine-answers-too-large"):
        deploykit.export(model, tmp_path, name="m", engine="openvino")


@pytest.mark.sampled
def test_files_that_run_it_install_openvino(tmp_path):
    from deploykit.exporting.deployment import Manifests

    how = Manifests(("docker",), force=True)
    deploykit.export(live(doubled, (None, 3)), tmp_path, name="m", manifests=how)
    plain = (tmp_path / "Dockerfile.deploykit").read_text()
    assert "openvino" not in plain
    deploykit.export(live(doubled, (None, 3)), tmp_path, name="m", manifests=how, engine="openvino")
    text = (tmp_path / "Dockerfile.deploykit").read_text()
    assert "py3-none-any.whl[tf,openvino]'" in text
    alone = tmp_path / "Dockerfile.openvino"
    assert '["m", "/models/m"]' in alone.read_text()
    deploykit.export(live(doubled, (None, 3)), tmp_path, name="other", manifests=how)
    assert not alone.exists(), "it would lack a model"


@pytest.mark.sampled
def test_the_command_says_who_computes_what(deploykit, codes, tmp_path):
    found = deploykit("export", codes, tmp_path / "base", "--json")
    assert found.document["engine"]["signatures"] == ["serving_default"]
    found = deploykit("export", codes, tmp_path / "base", "--engine", "tensorflow")
    assert "OpenVINO" not in found.stdout
    assert (
        json.loads((tmp_path / "base/net/1" / FOLDER / "manifest.json").read_text())["format"] == 1
    )
    graph = load_graph(codes)
    feeds = {graph.inputs[0]: random(3, 9, 8, C)}
    (expected,) = run(graph, feeds)
    for answer in answers(tmp_path / "base/net/2", "serving_default", feeds):
        (values,) = answer.values()
        assert np.square(values - expected).sum() < np.square(expected).sum() / 100
