"""Requests to warm up with: what TensorFlow reads back is what was fed."""

import random
import struct
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.protos import PredictionLog
from deploykit.serving.protocol.signatures import CLASSIFY, PREDICT, REGRESS, Tensor
from deploykit.serving.saved_model import warmup_requests
from deploykit.serving.saved_model.proto import signature_def
from deploykit.serving.saved_model.warmup_requests import (
    FILE,
    read_requests,
    requests,
    write_requests,
)
from deploykit.serving.server.replay_warmup import warm_up
from deploykit.transforms.common.errors import GraphError, VerificationError
from deploykit.transforms.ir.protos import SignatureDef
from deploykit.transforms.ir.tensors import DType, decode
from deploykit.transforms.ir.tfrecord import masked_crc
from tests.support import raises, showing, tf

FEEDS = [
    {"x": np.full((1, 2), n, np.float32), "ids": np.array([[n]], np.int32),
     "text": np.array([b"a\0b"], object)}
    for n in range(3)
]  # fmt: skip
INPUTS = {
    "x": Tensor("x:0", DType("float32"), (-1, 2)),
    "ids": Tensor("i:0", DType("int32"), (-1, 1)),
    "text": Tensor("t:0", DType("string"), (-1,)),
}


def signature(method: str) -> SignatureDef:
    examples = {"inputs": Tensor("e:0", DType("string"), (-1,))}
    return signature_def(method, INPUTS if method == PREDICT else examples, {})


def written(folder, found) -> None:
    path = folder / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(write_requests(found)))


def test_tensorflow_reads_the_file(tmp_path):
    written(tmp_path, requests("m", "s", signature(PREDICT), FEEDS))
    records = list(tf.data.TFRecordDataset(str(tmp_path / FILE)).as_numpy_iterator())
    assert len(records) == 3
    for record, feed in zip(records, FEEDS, strict=True):
        request = PredictionLog.FromString(record).predict_log.request
        assert (request.model_spec.name, request.model_spec.signature_name) == ("m", "s")
        assert not request.model_spec.HasField("version")
        assert set(request.inputs) == set(feed)
        for alias, array in feed.items():
            np.testing.assert_array_equal(decode(request.inputs[alias]), array)
            parsed = tf.io.parse_tensor(
                request.inputs[alias].SerializeToString(), INPUTS[alias].dtype
            )
            np.testing.assert_array_equal(parsed, array)


@pytest.mark.parametrize(("method", "log"), [(CLASSIFY, "classify_log"), (REGRESS, "regress_log")])
def test_examples(method, log, tmp_path):
    written(tmp_path, requests("m", "s", signature(method), FEEDS))
    found = list(read_requests(tmp_path))
    assert [each.WhichOneof("log_type") for each in found] == [log] * 3
    (example,) = getattr(found[2], log).request.input.example_list.examples
    spec = {
        "x": tf.io.FixedLenFeature([2], tf.float32),
        "ids": tf.io.FixedLenFeature([1], tf.int64),
        "text": tf.io.FixedLenFeature([], tf.string),
    }
    parsed = tf.io.parse_single_example(example.SerializeToString(), spec)
    for alias, array in FEEDS[2].items():
        np.testing.assert_array_equal(parsed[alias], array[0])


def test_the_same_bytes(tmp_path):
    made = [b"".join(write_requests(requests("m", "s", signature(PREDICT), FEEDS)))
            for _ in range(2)]  # fmt: skip
    assert made[0] == made[1]


def test_bad_files(tmp_path, monkeypatch):
    assert list(read_requests(tmp_path)) == []
    written(tmp_path, requests("m", "s", signature(PREDICT), FEEDS))
    path = tmp_path / FILE
    content = path.read_bytes()
    monkeypatch.setattr(warmup_requests, "MOST", 2)
    with raises(GraphError, "warmup-too-many", most=2):
        list(read_requests(tmp_path))
    monkeypatch.undo()
    path.write_bytes(content[:-1])
    with raises(
        VerificationError, "tfrecord-damaged", number=2, reason=showing("record-truncated")
    ):
        list(read_requests(tmp_path))
    path.write_bytes(warmup_requests.framed(b"\xff"))
    with raises(GraphError, "warmup-record", number=0):
        list(read_requests(tmp_path))


@pytest.mark.parametrize("count", [0, 1, 3, 1000, 5000])
def test_damaged_files_end_in_one_sentence(tmp_path, count):
    """Bits that are flipped, bytes that are cut off, garbage, and more requests than are run."""
    good = b"".join(write_requests(requests("m", "s", signature(PREDICT), FEEDS)))
    rng = random.Random(count)
    path = tmp_path / FILE
    path.parent.mkdir()
    if count >= 1000:
        path.write_bytes(warmup_requests.framed(b"") * count)
        if count > 1000:
            with raises(GraphError, "warmup-too-many", most=1000):
                list(read_requests(tmp_path))
        else:
            assert len(list(read_requests(tmp_path))) == count
        return
    for _ in range(100):
        content = bytearray(good)
        for _ in range(count):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        if count == 0:
            content = bytearray(rng.randbytes(rng.randrange(1, 200)))
        elif rng.random() < 0.3:
            del content[rng.randrange(1, len(content)) :]
        path.write_bytes(content)
        try:
            found = list(read_requests(tmp_path))
        except (GraphError, VerificationError) as error:
            assert "\n" not in str(error)  # noqa: PT017
        else:  # it was cut between two records, or its bits were flipped back
            assert good.startswith(bytes(content))
            assert len(found) < len(FEEDS) or bytes(content) == good


def test_a_record_of_2_gib_that_is_not_there(tmp_path):
    path = tmp_path / FILE
    path.parent.mkdir()
    length = struct.pack("<Q", 1 << 31)
    path.write_bytes(length + struct.pack("<I", masked_crc(length)) + bytes(1000))
    tracemalloc.start()
    with raises(
        VerificationError, "tfrecord-damaged", number=0, reason=showing("record-truncated")
    ):
        list(read_requests(tmp_path))
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()


def test_the_tensors_of_a_request_share_what_is_filled_in(tmp_path):
    log = PredictionLog()
    for number in range(1000):
        tensor = log.predict_log.request.inputs[str(number)]
        tensor.dtype = 1
        tensor.tensor_shape.dim.add(size=8 << 20)  # 32 MiB each, of which nothing was sent
    path = tmp_path / FILE
    path.parent.mkdir()
    path.write_bytes(warmup_requests.framed(log.SerializeToString()))
    with raises(ServingError, "tensor-not-parsed"):
        warm_up(SimpleNamespace(folder=tmp_path))
