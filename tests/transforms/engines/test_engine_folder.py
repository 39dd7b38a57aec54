"""What lies beside a version for an engine: read as it was written, or refused in a sentence."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.engines.engine_folder import FOLDER, read, write
from deploykit.transforms.engines.engine_manifest import (
    EngineAnswer,
    EngineFolder,
    EngineSignature,
    EngineTensor,
)
from deploykit.transforms.engines.engines import EngineUse
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.runtime.differences import CODES_BAR, FLOAT_BAR
from tests.support import raises, says, shows

X = np.arange(6, dtype=np.float32).reshape(3, 2)


def graph_def():
    proto = GraphDef()
    Node("x", "Placeholder").with_attrs(dtype=DType("float32")).to_proto(into=proto.node.add())
    Node("y", "Relu", ("x",)).with_attrs(T=DType("float32")).to_proto(into=proto.node.add())
    return proto.SerializeToString()


def content():
    signature = EngineSignature(
        {"images": EngineTensor("x:0", "float32", (-1, 2))},
        {"rows": EngineTensor("y:0", "float32", (-1, 2)),
         "any": EngineTensor("y", "float32", None)},
    )  # fmt: skip
    answers = [
        EngineAnswer("serving_default", n, {"images": X[:n]}, {"rows": X[:n], "any": X[:n]})
        for n in (0, 1, 3)
    ]
    bars = {"serving_default": {"rows": FLOAT_BAR, "any": None}}
    use = EngineUse("openvino", "2026.4.1", settings={"threads": 2})
    return EngineFolder(
        use, graph_def(), {"serving_default": signature}, answers, bars, {"pixels": "it decodes"}
    )


def said(folder):
    with pytest.raises(GraphError) as error:
        read(folder)
    return str(error.value)


def edited(folder, change):
    path = folder / FOLDER / "manifest.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def test_it_is_read_as_it_was_written(tmp_path):
    written = content()
    write(tmp_path, written)
    found = read(tmp_path)
    assert replace(found, answers=()) == replace(written, answers=())
    for a, b in zip(found.answers, written.answers, strict=True):
        assert (a.signature, a.batch) == (b.signature, b.batch)
        for side in ("feeds", "expected"):
            for alias, array in getattr(b, side).items():
                np.testing.assert_array_equal(getattr(a, side)[alias], array, strict=True)
    assert [path.name for path in (tmp_path / "assets.extra").iterdir()] == ["deploykit.engine"]


def test_bars_of_noise_and_types_of_few_bits_are_read_again(tmp_path):
    import ml_dtypes

    made = content()
    half = X.astype(ml_dtypes.bfloat16)
    bar = replace(CODES_BAR, of_logarithm=True)
    signature = EngineSignature(
        {"n": EngineTensor("x", "bfloat16", None)}, {"y": EngineTensor("y", "bfloat16", (3, 2))}
    )
    answers = [EngineAnswer("a", 3, {"n": half}, {"y": half})]
    made = replace(made, signatures={"a": signature}, answers=answers, bars={"a": {"y": bar}})
    write(tmp_path, made)
    found = read(tmp_path)
    assert found.bars == {"a": {"y": bar}}
    np.testing.assert_array_equal(found.answers[0].expected["y"], half, strict=True)


def test_a_version_without_the_folder_is_computed_by_tensorflow(tmp_path):
    assert read(tmp_path) is None


def test_it_is_written_once_and_nothing_is_left_of_what_fails(tmp_path):
    write(tmp_path, content())
    with raises(FileError, "never-replaced"):
        write(tmp_path, content())
    assert [path.name for path in (tmp_path / "assets.extra").iterdir()] == ["deploykit.engine"]


@pytest.mark.parametrize("name", ["manifest.json", "graph.pb", "answers.pb"])
def test_a_missing_or_other_file_is_refused(tmp_path, name):
    path = write(tmp_path, content()) / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    assert name in said(tmp_path)
    path.unlink()
    assert name in said(tmp_path)
    assert shows(said(tmp_path), "engine-not-whole")
    path.mkdir()
    assert name in said(tmp_path)


def misfit(code, **fields):
    """Return the pattern of what is said of a manifest with another key or value."""
    return says("manifest-unexpected", reason=str(GraphError(code, **fields)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(format=2), says("engine-format-unsupported", got=2, known=1)),
        (lambda d: d.update(kind="model"), says("manifest-kind", kind="engine")),
        (
            lambda d: d.update(use={"engine": "other", "version": "1"}),
            misfit(
                "unexpected",
                what="use.engine",
                got="other",
                expected="one of tensorflow, openvino",
            ),
        ),
        (lambda d: d.pop("answers"), misfit("key-missing", what="it", key="answers")),
        (lambda d: d.update(answers=[]), says("manifest-lacks-answers")),
        (lambda d: d.update(answers=d["answers"][:1]), says("manifest-lacks-answers")),
        (lambda d: d.update(signatures={}), says("manifest-without-signature")),
        (lambda d: d.update(bars={}), says("manifest-lacks-outputs")),
        (
            lambda d: d["answers"][0]["feeds"].clear(),
            says("manifest-answers-names", expected=["images"]),
        ),
        (lambda d: d["answers"][0]["feeds"].update(images="value_9"), says("manifest-incomplete")),
        (
            lambda d: d["answers"][0].update(signature="other"),
            says("manifest-answers-unknown", signature="other"),
        ),
        (
            lambda d: d["answers"][0].update(batch="3"),
            misfit("unexpected", what="answers[0].batch", got="3", expected="int"),
        ),
        (
            lambda d: d["bars"]["serving_default"]["rows"].update(tolerance=-1),
            misfit("value-unexpected", what="bars[...][...].tolerance", expected="float > 0.0"),
        ),
        (
            lambda d: d["signatures"]["serving_default"]["inputs"]["images"].update(shape=[-1, 3]),
            says(
                "manifest-answers-form",
                name="images",
                got_type="float32",
                got_shape=[0, 2],
                dtype="float32",
                shape=[-1, 3],
            ),
        ),
        (
            lambda d: d["signatures"]["serving_default"]["inputs"]["images"].update(shape=[-2, 2]),
            misfit(
                "value-unexpected",
                what="signatures[...].inputs[...].shape[0]",
                expected="int >= -1",
            ),
        ),
        (
            lambda d: d["signatures"]["serving_default"]["outputs"]["any"].update(dtype="float33"),
            says("type-unknown", name="float33"),
        ),
        (
            lambda d: d["signatures"]["serving_default"]["outputs"]["any"].update(name="z"),
            says("manifest-tensor-missing", tensor="z"),
        ),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(tmp_path, change, words):
    write(tmp_path, content())
    edited(tmp_path, change)
    assert re.search(words, said(tmp_path))
    assert said(tmp_path).startswith(str(tmp_path / FOLDER / "manifest.json"))


@pytest.mark.parametrize("text", ["[]", "{", "[" * 100000, '{"kind": "engine", "format": 1}'])
def test_what_is_no_manifest_is_refused(tmp_path, text):
    (write(tmp_path, content()) / "manifest.json").write_text(text)
    assert str(tmp_path) in said(tmp_path)


def test_answers_that_would_take_all_memory_are_refused(tmp_path):
    made = content()
    huge = np.broadcast_to(np.float32(0), (1 << 20, 2 << 10))  # 8 GiB, of one value
    answer = EngineAnswer("serving_default", 3, {"images": X}, {"rows": X, "any": X})
    write(tmp_path, replace(made, answers=[answer]))
    path = tmp_path / FOLDER / "answers.pb"
    proto = GraphDef.FromString(path.read_bytes())
    proto.node[0].attr["value"].tensor.ClearField("tensor_content")
    proto.node[0].attr["value"].tensor.float_val.append(0)
    for dim, size in zip(
        proto.node[0].attr["value"].tensor.tensor_shape.dim, huge.shape, strict=True
    ):
        dim.size = size
    path.write_bytes(proto.SerializeToString())
    import hashlib

    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    edited(tmp_path, lambda d: d["answers_file"].update(sha256=digest))
    assert shows(said(tmp_path), "too-many")
