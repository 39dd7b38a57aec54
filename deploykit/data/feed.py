"""The feed style: Python reads and parses records one by one, and feeds batches with each call.

It also is what tells in which file and line data are wrong: `check_records`.
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
_NODE = re.compile(r"^node [^:]*: ")  # of the graph that prepares a record, which is not the user's
_TRIED = 16  # records, to see what decoding costs


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

    FileError, GraphError: a file or a record is damaged; the message names it.
    """
    waiting = values(pipeline)
    while group := list(itertools.islice(waiting, pipeline.batch)):
        if len(group) == pipeline.batch or not pipeline.whole:
            yield {name: together([item[name] for item in group]) for name in pipeline.steps}


def values(pipeline: Pipeline) -> Iterator[dict[str, Array]]:
    """Yield what each record gives the inputs."""
    epochs = itertools.count() if pipeline.epochs is None else range(pipeline.epochs)
    for epoch in epochs:
        shuffled = None
        if pipeline.shuffle is not None:
            shuffled = random.Random(pipeline.shuffle + epoch)
        for where, record in records(pipeline.data, tuple(pipeline.features), shuffled):
            yield prepared(pipeline, where, record)


def check_records(pipeline: Pipeline) -> None:
    """Go through one epoch; raises FileError or GraphError that names the first damaged record."""
    for where, record in records(pipeline.data, tuple(pipeline.features)):
        prepared(pipeline, where, record)


def decoding_share(pipeline: Pipeline) -> float | None:
    """Return which share of the CPU time of a record goes into its images, of some records.

    Reading and decoding take turns in this thread, whose own time is taken. None: no images.
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
    """Return what a record gives the inputs, each made by `make`.

    GraphError: it cannot be used; `where` is named.
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
    except Exception as error:  # of TensorFlow's kernels, or of NumPy
        said = _NODE.sub("", sentence(error))
        cause = said.split("} ")[-1].split(" [Op:")[0]
        raise failed("record-not-usable", error, source=where, reason=cause[:200]) from None
