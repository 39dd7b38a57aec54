"""Warm-up requests, which TensorFlow Serving runs before a version receives requests."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from deploykit.serving.protocol import protos
from deploykit.serving.protocol.signatures import CLASSIFY, PREDICT, REGRESS
from deploykit.serving.saved_model.parse_examples import example
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.protos import SignatureDef
from deploykit.transforms.ir.tensors import Array, encode, type_name
from deploykit.transforms.ir.tfrecord import framed, read_records

MOST = 1000  # TensorFlow Serving refuses a version with more records
USUAL = 20  # enough to have every kernel ready; each costs time before a version answers


FILE = "assets.extra/tf_serving_warmup_requests"


def requests(
    model: str,
    name: str,
    signature: SignatureDef,
    feeds: Iterable[Mapping[str, Array]],
) -> Iterator[protos.PredictionLog]:
    """Yield one request for each feed, which is arrays by alias.

    Args:
        model: what requests call the model.
        name: the signature's name.
        signature: how the model is called; for Classify and Regress, feeds become tf.Examples.
        feeds: samples, the first axis counting them.
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
    """Yield so many feeds: of a list at even distances, else the first, so no others are read."""
    if not isinstance(feeds, Sequence) or len(feeds) <= count:
        yield from islice(feeds, count)
        return
    for number in range(count):
        yield feeds[number * (len(feeds) - 1) // max(count - 1, 1)]


def write_requests(prediction_logs: Iterable[protos.PredictionLog]) -> Iterator[bytes]:
    """Yield the bytes of the file of such requests."""
    for prediction_log in prediction_logs:
        yield framed(prediction_log.SerializeToString(deterministic=True))


def read_requests(folder: Path) -> Iterator[protos.PredictionLog]:
    """Yield the requests of a version directory; none where it has no such file.

    FileError: it cannot be read. VerificationError, GraphError: it is damaged, or has too many.
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
