"""Warm-up requests, which TensorFlow Serving runs before a version receives requests."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from deploykit.serving.protocol import protos
from deploykit.serving.protocol.signatures import CLASSIFY, PREDICT, REGRESS
from deploykit.serving.saved_model.proto import example
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.protos import SignatureDef
from deploykit.transforms.ir.tensors import Array, encode, type_name
from deploykit.transforms.ir.tfrecord import framed, read_records

MOST = 1000  # TensorFlow Serving rejects a version with more records
USUAL = 20  # enough to initialize every kernel; each delays the start of a version


FILE = "assets.extra/tf_serving_warmup_requests"


def requests(
    model: str, name: str, signature: SignatureDef, feeds: Iterable[Mapping[str, Array]]
) -> Iterator[protos.PredictionLog]:
    """Yield one request per feed of arrays by alias.

    Args:
        model: name of the model in the requests.
        name: name of the signature.
        signature: its method; for Classify and Regress, feeds become tf.Examples.
        feeds: arrays by alias; the first axis is the batch.
    """
    spec = protos.ModelSpec(name=model, signature_name=name)
    for feed in feeds:
        if signature.method_name == CLASSIFY:
            requested = protos.ClassificationRequest(model_spec=spec, input=_examples(feed))
            yield protos.PredictionLog(classify_log={"request": requested})
        elif signature.method_name == REGRESS:
            requested = protos.RegressionRequest(model_spec=spec, input=_examples(feed))
            yield protos.PredictionLog(regress_log={"request": requested})
        elif signature.method_name == PREDICT:
            requested = protos.PredictRequest(model_spec=spec)
            for alias, array in feed.items():
                encode(array, type_name(signature.inputs[alias].dtype), requested.inputs[alias])
            yield protos.PredictionLog(predict_log={"request": requested})


def _examples(feed: Mapping[str, Array]) -> protos.Input:
    count = min(len(array) for array in feed.values())
    samples = ({alias: a[n : n + 1] for alias, a in feed.items()} for n in range(count))
    return protos.Input(example_list={"examples": [example(sample) for sample in samples]})


def some(feeds: Iterable[Mapping[str, Array]], count: int) -> Iterator[Mapping[str, Array]]:
    """Yield `count` feeds: evenly spaced from a list, otherwise the first ones."""
    if not isinstance(feeds, Sequence) or len(feeds) <= count:
        yield from islice(feeds, count)
        return
    for number in range(count):
        yield feeds[number * (len(feeds) - 1) // max(count - 1, 1)]


def write_requests(prediction_logs: Iterable[protos.PredictionLog]) -> Iterator[bytes]:
    """Yield the bytes of a file of requests."""
    for prediction_log in prediction_logs:
        yield framed(prediction_log.SerializeToString(deterministic=True))


def read_requests(folder: Path) -> Iterator[protos.PredictionLog]:
    """Yield the requests of a version folder; none if it has no such file.

    FileError: it cannot be read. VerificationError, GraphError: it is damaged or too long.
    """
    from google.protobuf.message import DecodeError

    path = folder / FILE
    if not path.exists():
        return
    for number, record in enumerate(read_records(path, compressed=False)):
        if number == MOST:
            raise GraphError("warmup-too-many", source=path, most=MOST)
        try:
            yield protos.PredictionLog.FromString(record)
        except DecodeError:
            raise GraphError("warmup-record", source=path, number=number) from None
