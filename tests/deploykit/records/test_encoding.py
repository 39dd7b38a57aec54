"""What is encoded by hand is what TensorFlow's own classes and reader write and read."""

import gzip

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from deploykit.records import examples
from deploykit.records.examples import Feature
from deploykit.transforms.common.errors import VerificationError
from deploykit.transforms.ir import tfrecord
from deploykit.transforms.untrusted import files
from tests.support import says, tf

NAMES = st.text(min_size=1, max_size=20)
INT64 = st.integers(-(2**63), 2**63 - 1)
FLOAT32 = st.floats(width=32, allow_nan=True)
FEATURES = st.one_of(
    st.lists(FLOAT32, max_size=300).map(lambda v: ("float32", np.array(v, np.float32))),
    st.lists(INT64, max_size=40).map(lambda v: ("int64", np.array(v, np.int64))),
    st.lists(st.binary(max_size=300), max_size=5).map(lambda v: ("string", v)),
    hnp.arrays(st.sampled_from([np.uint8, np.int16, np.float64, np.bool_]), (2, 3)).map(
        lambda v: (v.dtype.name, v)
    ),
)


def by_tensorflow(values):
    features = {}
    for name, (dtype, value) in values.items():
        if dtype == "float32":
            features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=value))
        elif dtype == "int64":
            features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=value))
        else:
            listed = value if dtype == "string" else [value.tobytes()]
            features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=listed))
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return example.SerializeToString(deterministic=True)


def by_hand(values):
    kinds = ("float32", "int64", "string")
    features = {
        name: Feature(dtype, np.shape(value), "" if dtype in kinds else "raw")
        for name, (dtype, value) in values.items()
    }
    return examples.example(features, {name: value for name, (_, value) in values.items()})


@pytest.mark.sampled
@settings(max_examples=200)
@given(st.dictionaries(NAMES, FEATURES, max_size=4))
def test_an_example_is_what_tensorflow_would_write(values):
    made, theirs = by_hand(values), by_tensorflow(values)
    again = tf.train.Example.FromString(made).SerializeToString(deterministic=True)
    assert again == theirs
    assert len(made) == len(theirs)
    # Of names that begin alike, protobuf's Python puts the longer one first.
    if not any(a != b and a.startswith(b) for a in values for b in values):
        assert made == theirs


def test_a_varint_that_lacks_a_byte_would_be_seen(monkeypatch):
    values = {"x": ("int64", np.array([-1, 300]))}
    monkeypatch.setattr(examples, "_varint", lambda number: bytes([number & 0x7F]))
    assert by_hand(values) != by_tensorflow(values)


def test_a_number_alone_is_a_list_of_one():
    features = {"label": Feature("int64"), "y": Feature("float32"), "text": Feature("string")}
    made = examples.example(features, {"label": 3, "y": 0.5, "text": b"a"})
    values = {
        "label": ("int64", [3]), "y": ("float32", [0.5]), "text": ("string", [b"a"]),
    }  # fmt: skip
    assert made == by_tensorflow(values)


@pytest.mark.parametrize("records", [[], [b""], [b"a" * 5, b"", bytes(range(256)) * 10]])
def test_files_are_what_tensorflow_writes(tmp_path, records):
    path = str(tmp_path / "theirs.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    ours = b"".join(map(tfrecord.framed, records))
    assert ours == (tmp_path / "theirs.tfrecord").read_bytes()
    assert list(tfrecord.read_records(path, False)) == records


def test_a_record_as_long_as_gzip_begins(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(tfrecord.framed(bytes(0x088B1F)))
    assert path.read_bytes().startswith(b"\x1f\x8b\x08")
    assert not tfrecord.is_gzip(path)


def test_the_check_value_of_crc32c():
    assert google_crc32c.value(b"123456789") == 0xE3069283


@pytest.mark.parametrize("kib", [63, 65, 4000])
def test_a_packed_record_of_far_more_than_its_file(kib, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_UNPACKED", 64 << 10)
    monkeypatch.setattr(files, "MAX_RATIO", 10)
    path = tmp_path / "a"
    record = bytes(kib << 10)
    path.write_bytes(gzip.compress(tfrecord.framed(record)))
    assert 10 * path.stat().st_size < 64 << 10
    if kib < 64:
        assert list(tfrecord.read_records(path, True)) == [record]
    else:
        with pytest.raises(VerificationError, match=says("tfrecord-damaged", number=0, source="a")):
            list(tfrecord.read_records(path, True))
    path.write_bytes(tfrecord.framed(record))
    assert list(tfrecord.read_records(path, False)) == [record]
