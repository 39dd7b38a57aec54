"""The feed style: Python reads and parses records one by one, and feeds a batch in each step.

`check_records` uses it to find the file and line of invalid data.
"""

import itertools
import random
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from deploykit.data.apply_preprocessing import in_python, together
from deploykit.data.pipeline import Pipeline
from deploykit.data.preprocessing import Steps
from deploykit.data.preprocessing_plan import result_of
from deploykit.data.reading import records
from deploykit.records.examples import Feature
from deploykit.transforms.common.errors import Error, GraphError, failed
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.session import sentence

Maker = Callable[[Steps, Feature, Any], Array]
_NODE = re.compile(r"^node [^:]*: ")  # a node of deploykit's preprocessing, not of the user's graph
_TRIED = 16  # records used to measure the cost of decoding


def placeholders(pipeline: Pipeline) -> dict[str, Any]:
    """Return placeholders for batches by input, in the current graph."""
    import tensorflow as tf

    features = pipeline.features
    results = {name: result_of(v, features[v.feature]) for name, v in pipeline.steps.items()}
    return {
        name: tf.compat.v1.placeholder(item.dtype, (None, *item.shape))
        for name, item in results.items()
    }


def batches(pipeline: Pipeline) -> Iterator[dict[str, Array]]:
    """Yield batches by input, read in this process; images start TensorFlow.

    FileError, GraphError: the named file or record is damaged.
    """
    waiting = values(pipeline)
    while group := list(itertools.islice(waiting, pipeline.batch)):
        if len(group) == pipeline.batch or not pipeline.whole:
            yield {name: together([item[name] for item in group]) for name in pipeline.steps}


def values(pipeline: Pipeline) -> Iterator[dict[str, Array]]:
    """Yield the input values of each record."""
    epochs = itertools.count() if pipeline.epochs is None else range(pipeline.epochs)
    for epoch in epochs:
        shuffled = None
        if pipeline.shuffle is not None:
            shuffled = random.Random(pipeline.shuffle + epoch)
        for where, record in records(pipeline.data, tuple(pipeline.features), shuffled):
            yield prepared(pipeline, where, record)


def check_records(pipeline: Pipeline) -> None:
    """Read one epoch. FileError, GraphError: the named record is damaged."""
    for where, record in records(pipeline.data, tuple(pipeline.features)):
        prepared(pipeline, where, record)


def decoding_share(pipeline: Pipeline) -> float | None:
    """Return the share of a record's CPU time spent decoding images; None if there are no images.

    Measured on a few records, in the CPU time of this thread.
    """
    if not any(feature.content == "image" for feature in pipeline.features.values()):
        return None
    waiting = records(pipeline.data, tuple(pipeline.features))
    reading = decoding = 0.0
    for number in range(_TRIED + 1):
        start = time.thread_time()
        first = next(waiting, None)
        between = time.thread_time()
        if first is None:
            break
        prepared(pipeline, *first)
        if number:  # the first one starts TensorFlow's kernels
            reading += between - start
            decoding += time.thread_time() - between
    return decoding / (reading + decoding) if reading + decoding else None


def prepared(
    pipeline: Pipeline, where: str, record: dict[str, Any], make: Maker = in_python
) -> dict[str, Array]:
    """Return the input values of a record, each computed by `make`.

    GraphError: the record is invalid; the message names `where`.
    """
    try:
        return {
            name: make(steps, pipeline.features[steps.feature], record[steps.feature])
            for name, steps in pipeline.steps.items()
        }
    except GraphError as error:
        raise error.within(where) from None
    except Error:
        raise
    except Exception as error:  # from TensorFlow's kernels or NumPy
        text = _NODE.sub("", sentence(error))
        cause = text.split("} ")[-1].split(" [Op:")[0]
        raise failed("record-not-usable", error, source=where, reason=cause[:200]) from None
