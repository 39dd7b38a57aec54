"""Requests to warm up with: what TensorFlow reads back is what was fed."""

import numpy as np
import pytest

from deploykit.serving.protocol.protos import PredictionLog, SignatureDef
from deploykit.serving.protocol.signatures import CLASSIFY, PREDICT, REGRESS, Tensor
from deploykit.serving.saved_model import warmup_requests
from deploykit.serving.saved_model.proto import signature_def
from deploykit.serving.saved_model.warmup_requests import (
    FILE,
    read_requests,
    requests,
    write_requests,
)
from deploykit.transforms.core.errors import GraphError, VerificationError
from deploykit.transforms.core.tensors import DType, decode

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
    import tensorflow as tf

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
    import tensorflow as tf

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
    with pytest.raises(GraphError, match=r"tf_serving_warmup_requests: it has more than 2 records"):
        list(read_requests(tmp_path))
    monkeypatch.undo()
    path.write_bytes(content[:-1])
    with pytest.raises(VerificationError, match="record 2 is cut short"):
        list(read_requests(tmp_path))
    path.write_bytes(warmup_requests.framed(b"\xff"))
    with pytest.raises(GraphError, match="record 0 is no PredictionLog"):
        list(read_requests(tmp_path))
