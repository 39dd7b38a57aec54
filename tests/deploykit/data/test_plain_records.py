"""TFRecords without an index of deploykit: features, shapes by the model, and damage."""

import gzip
import re
from pathlib import Path

import numpy as np
import pytest

from deploykit.batch_inference.reading.partitions import cut_parts
from deploykit.batch_inference.reading.readers import reader_for
from deploykit.data.data import Data, is_arrays, open_data
from deploykit.data.fitted_records import fitting
from deploykit.data.pipeline import pipeline_for
from deploykit.data.preprocessing import Preprocessing, Steps
from deploykit.data.reading import batches
from deploykit.records.examples import Feature
from deploykit.transforms.common.errors import GraphError, VerificationError
from deploykit.transforms.ir.tfrecord import framed
from tests.deploykit.batch_inference.tables.made_up_tables import graph
from tests.deploykit.data import made_up
from tests.support import Containing, raises, shows, tf


def without_index(data: Data, *names: str) -> Data:
    """Return TFRecords as they are opened without their index, under other names."""
    for file, name in zip(data.files, names or data.files, strict=True):
        Path(file).rename(Path(data.path, name))
    for index in Path(data.path).glob("*.index.json"):
        index.unlink()
    return open_data(data.path)


@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.parametrize(
    "names", [(), ("a.tfrecord", "b.tfrecords", "c.tfrec"),
              tuple(f"set-train.tfrecord-0000{n}-of-00003" for n in range(3))],
)  # fmt: skip
def test_records_without_an_index_are_read_as_with_it(tmp_path, compression, names):
    known = made_up.write_records(tmp_path / "records", compression)
    model = graph(x=("float32", (-1, 2, made_up.WIDTH // 2)), pixels=("uint8", (-1, 4, 5, 1)))
    expected = list(
        batches(pipeline_for(known, graph(x=("float32", (-1, made_up.WIDTH))), epochs=1))
    )
    (tmp_path / "records" / "dataset_info.json").write_text("{}")  # as TensorFlow Datasets has
    data = without_index(known, *names)
    assert data.records == made_up.COUNT
    pipeline = pipeline_for(data, model, epochs=1)
    assert pipeline.features["x"] == Feature("float32", (2, made_up.WIDTH // 2))
    assert pipeline.features["pixels"] == Feature("uint8", (4, 5, 1), "raw")
    found = list(batches(pipeline))
    assert not is_arrays(data.files[0])
    one = pipeline_for(open_data(data.files[0]), model, epochs=1)
    (first, *_) = batches(one)
    np.testing.assert_array_equal(first["x"], found[0]["x"][: len(first["x"])])
    for batch, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(batch["x"].reshape(other["x"].shape), other["x"])


def test_features_of_records_without_an_index(tmp_path):
    data = without_index(made_up.write_texts(tmp_path / "texts"))
    lists = {"text": Feature("string"), "tokens": Feature("string", (None,)),
             "codes": Feature("int64", (None,)), "id": Feature("int64")}  # fmt: skip
    assert data.features == lists
    only = pipeline_for(data, graph(words=("string", (-1,))), preprocessing=Preprocessing(
        {"words": Steps(feature="text")}
    ), epochs=1)  # fmt: skip
    assert next(iter(batches(only)))["words"].tolist()[:2] == [
        t.encode() for t in made_up.TEXTS[:2]
    ]
    folder = tmp_path / "images"
    folder.mkdir()
    with tf.io.TFRecordWriter(str(folder / "a.tfrecord")) as writer:
        for n in range(3):
            writer.write(made_up.example(jpg=[made_up.jpeg(n)], label=[n]))
    data = open_data(str(folder))
    assert data.features == {"jpg": Feature("string", (), "image"), "label": Feature("int64")}


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_damage_of_records_without_an_index_names_the_file_and_the_byte(tmp_path, compression):
    file = tmp_path / "a.tfrecord"
    whole = b"".join(map(framed, [made_up.example(x=[1.5, float(n)]) for n in range(4)]))
    size = len(whole) // 4
    model = graph(x=("float32", (-1, 2)))

    def read(content: bytes) -> str:
        file.write_bytes(gzip.compress(content) if compression else content)
        data = open_data(str(file))
        for part in cut_parts(pipeline_for(data, model).data, None):
            for batch in reader_for(data)(part, 8):
                for bad in batch.bad:
                    return f"{bad.file} {bad.row}: {bad.reason}"
        return ""

    assert read(whole) == ""
    assert re.match(rf"a.tfrecord 3: .*truncated.* at byte {3 * size}$", read(whole[:-5]))
    assert re.match(
        rf"a.tfrecord 3: .*truncated.* at byte {3 * size}$", read(whole[: 3 * size + 7])
    )
    changed = bytearray(whole)
    changed[2 * size + 14] ^= 1
    assert re.match(rf"a.tfrecord 2: .*checksum.* at byte {2 * size}$", read(bytes(changed)))
    changed = bytearray(whole)
    changed[size] ^= 1
    with raises(VerificationError, "tfrecord-damaged", number=1, reason=Containing(f" {size}")):
        read(bytes(changed))
    file.write_bytes(framed(b"\xff\xff"))
    with raises(GraphError, "not-an-example"):
        open_data(str(file))
    (tmp_path / "b.tfrecord").write_bytes(gzip.compress(whole))
    with raises(GraphError, "records-partly-compressed"):
        open_data(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "shape", "expected"),
    [(b"1.25", (-1,), Feature("string")), (b"1.25", (-1, 1), Feature("string")),
     (b"\0\0\0\x80", (-1,), Feature("string")), (b"1.25,2.5", (-1, 2), Feature("string")),
     (np.float32([1.25, 2.5]).tobytes(), (-1, 2), Feature("float32", (2,), "raw"))],
)  # fmt: skip
def test_texts_and_single_values_are_not_taken_for_raw_arrays(tmp_path, content, shape, expected):
    (tmp_path / "a.tfrecord").write_bytes(framed(made_up.example(x=[content])))
    data = fitting(open_data(str(tmp_path)), graph(x=("float32", shape)), {})
    assert data.features == {"x": expected}
    if expected.content:
        fed = pipeline_for(data, graph(x=("float32", shape)), epochs=1).fed
        assert shows(fed["x"], "raw-bytes-fed", what=Containing("float32 2 "))


def test_only_records_beside_other_files_are_read(tmp_path, caplog):
    (tmp_path / "a.tfrecord-00000-of-00001").write_bytes(framed(made_up.example(x=[1.5])))
    for end in (".idx", ".crc", ".json"):
        (tmp_path / f"a.tfrecord-00000-of-00001{end}").write_text("1 2 3")
    (tmp_path / "labels.csv").write_text("1,2\n")
    data = open_data(str(tmp_path))
    assert (data.kind, data.counts) == ("records", (1,))
    assert shows(caplog.text, "records-not-read", count=1, files="labels.csv")


@pytest.mark.parametrize(
    ("usual", "other", "type_", "shape", "expected"),
    [(np.ones(2, np.float32).tobytes(), b"\0", "float32", (-1, 2), Feature("float32", (2,), "raw")),
     (made_up.jpeg(0), b"damaged", "float32", (-1, 8, 8, 3), Feature("string", (), "image")),
     (b"text", b"\xff", "string", (-1,), Feature("string"))],
)  # fmt: skip
def test_most_records_decide_what_bytes_are(tmp_path, usual, other, type_, shape, expected):
    for contents, feature in (
        ([usual, other, usual], expected),
        ([other, usual, other], Feature("string")),
    ):
        records = [made_up.example(x=[content], y=[1]) for content in contents]
        records.insert(1, made_up.example(y=[1]))
        (tmp_path / "a.tfrecord").write_bytes(b"".join(map(framed, records)))
        data = fitting(open_data(str(tmp_path)), graph(x=(type_, shape)), {})
        assert data.features == {"x": feature, "y": Feature("int64")}
        assert data.unlabelled == ["y"]


def test_without_a_model_features_that_all_records_have_are_read(tmp_path):
    records = [made_up.example(a=[1], **({"b": [2.5]} if n else {})) for n in range(3)]
    (tmp_path / "a.tfrecord").write_bytes(b"".join(map(framed, records)))
    data = open_data(str(tmp_path))
    assert data.features == {"a": Feature("int64"), "b": Feature("float32")}
    assert list(pipeline_for(data, None, epochs=1).steps) == ["a"]
    (tmp_path / "a.tfrecord").write_bytes(b"".join(map(framed, [made_up.example(a=[]), *records])))
    assert open_data(str(tmp_path)).features["a"] == Feature("int64")


OPEN, FIXED = ("int64", (-1, -1)), ("int64", (-1, 4))
SIZES = [  # the lengths of lists, the input, its steps, and the shape of the feature
    ([4, 4], FIXED, Steps(), (4,)), ([2, 3], FIXED, Steps(), (4,)), ([4, 3], FIXED, Steps(), (4,)),
    ([3, 3], FIXED, Steps(), (3,)), ([4, 2], ("int64", (-1, 2, 2)), Steps(), (2, 2)),
    ([1, 2], ("int64", (-1,)), Steps(), ()), ([4, 4], OPEN, Steps(), (None,)),
    ([4, 4], FIXED, Steps(length=4), (None,)), ([4, 6], FIXED, Steps(length=4), (None,)),
]  # fmt: skip


@pytest.mark.parametrize(("lengths", "expected", "steps", "shape"), SIZES)
def test_lists_have_the_size_that_the_model_takes(tmp_path, lengths, expected, steps, shape):
    records = [made_up.example(x=[1] * size) for size in lengths]
    (tmp_path / "a.tfrecord").write_bytes(b"".join(map(framed, records)))
    data = fitting(open_data(str(tmp_path)), graph(x=expected), {"x": steps})
    assert data.features == {"x": Feature("int64", shape)}


def test_a_text_that_is_split_has_one_value(tmp_path):
    (tmp_path / "a.tfrecord").write_bytes(framed(made_up.example(x=[b"to be"])))
    declared = Preprocessing({"x": Steps(split=" ")})
    model = graph(x=("string", (-1, -1)))
    pipeline = pipeline_for(open_data(str(tmp_path)), model, preprocessing=declared, epochs=1)
    assert next(iter(batches(pipeline)))["x"].tolist() == [[b"to", b"be"]]


@pytest.mark.parametrize(("shape", "fed"), [((-1, 4), (4,)), ((-1, -1), (None,))])
def test_the_open_sizes_of_an_index_are_those_of_the_model(tmp_path, shape, fed):
    contents = [made_up.example(x=[1] * size) for size in (2, 4, 3)]
    data = made_up.write_shards(tmp_path / "rows", {"x": Feature("int64", (None,))}, contents)
    assert pipeline_for(data, graph(x=("int64", shape))).features == {"x": Feature("int64", fed)}
