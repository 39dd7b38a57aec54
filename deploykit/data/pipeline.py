"""The specification of an input pipeline, and its options. Each input style builds it."""

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from google.protobuf.message import DecodeError

from deploykit.benchmarking.run_config import INPUTS
from deploykit.data.data import Data, is_arrays
from deploykit.data.fitted_records import fitting
from deploykit.data.preprocessing import Preprocessing, Steps, declared_for, with_header
from deploykit.data.preprocessing_plan import keeps_files, plan, result_of
from deploykit.records.examples import Feature
from deploykit.storage.csv_files import HeaderRule
from deploykit.storage.image_files import HEAD, size_of
from deploykit.storage.parameters import takes_former_names
from deploykit.system.machine import usable_cores
from deploykit.transforms.common.errors import Error, GraphError
from deploykit.transforms.common.flag import COLUMNS, HEADER, PREPROCESS, Flag
from deploykit.transforms.engines.engines import MAX_BATCH, MAX_THREADS
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import split
from deploykit.transforms.ir.protos import Example
from deploykit.transforms.ir.tfrecord import read_records
from deploykit.transforms.untrusted.files import opened
from deploykit.verification.samples import InputFunction, PreprocessLike
from deploykit.verification.synthetic.sample_inputs import demanded_batch


@takes_former_names
@dataclass(frozen=True)
class InputPipelineOptions:
    """Options for reading files while a model runs."""

    HEADING: ClassVar = "Input from files"

    run_ops: Annotated[
        Sequence[str], Flag(hidden="--fetch", formerly="fetches", format="names")
    ] = ()
    """Run these ops or tensors instead of the outputs, for example a training step."""
    init: Annotated[Sequence[str], Flag(format="names")] = ()
    """Run these ops once at the start."""
    simulated_compute_ms: Annotated[
        float | None,
        Flag(hidden="--simulate-accelerator", formerly="wait_ms", metavar="MS", at_least=0),
    ] = None
    """Instead of running the model, wait this long per batch, so that the CPU is free to read."""
    preprocess: Annotated[PreprocessLike | None, PREPROCESS] = None
    header: Annotated[HeaderRule, HEADER] = "auto"
    columns: Annotated[Mapping[str, str], COLUMNS] = field(default_factory=dict)
    on_error: Literal["stop", "skip"] = "stop"
    """Whether a damaged image, in a file or a TFRecord, stops the run or is skipped."""
    shuffle: bool = False
    """Shuffle the files and neighboring records, as for training."""
    cache: Annotated[str | None, Flag(format="path", metavar="memory|FILE")] = None
    """tf.data: cache parsed records in memory or in this file, so that later epochs do not read
    the data again."""
    buckets: Annotated[Sequence[int], Flag(format="counts", at_most=MAX_BATCH)] = ()
    """tf.data: batch texts of similar length together, to reduce padding. The values are the
    boundaries of the buckets, in tokens."""
    private_threads: Annotated[int | None, Flag(at_most=MAX_THREADS)] = None
    """tf.data: read with this many private threads instead of the model's threads."""
    service_address: Annotated[str | None, Flag(formerly="address", metavar="HOST:PORT")] = None
    """Use the workers of a tf.data service that is already running. One epoch is checked first."""
    pipeline: Annotated[
        str | InputFunction | None, Flag(format="text", metavar="MODULE:FUNCTION")
    ] = None
    """Run and measure your own tf.data function. It is called with the path from `data`, and with
    batch and epochs if it takes them. It is compared with `input` tfdata. It is measured alone with
    `input` pipeline, without `data`, or if only it can read the data."""

    def declared(self, graph: Graph | None) -> Preprocessing:
        """Return the preprocessing of the features. FileError, GraphError: it cannot be read."""
        return declared_for(graph, with_header(self.preprocess, self.header, self.columns))

    def reads_files(self, data: Any, style: str | None = None) -> bool:
        """Return whether files are read while the model runs, instead of loading all data first.

        GraphError: the options need files, and there are none.
        """
        requested = self != PLAIN or style not in (None, *INPUTS)
        path = os.fspath(data) if isinstance(data, str | os.PathLike) else None
        if self.pipeline is not None and data is None and style in (None, PIPELINE):
            return True
        if path is not None:
            return requested or not is_arrays(path)
        if style not in (None, *INPUTS):
            raise GraphError("input-style-without-files", got=style, known=INPUTS)
        if requested:
            raise GraphError(
                "option-needs",
                option="reading input from files",
                needed="data, a path (--data)",
            )
        return False

    def styles(self, style: str | None = None) -> tuple[str, ...]:
        """Return the input styles to measure. GraphError: options contradict them."""
        if style not in (None, "all", PIPELINE, *STYLES):
            raise GraphError("not-one-of", what="the input", known=[*STYLES, "all"], got=style)
        if style == PIPELINE and self.pipeline is None:
            raise GraphError("input-style-pipeline")
        served = self.service_address is not None
        if served and (style != "tfdata" or self.pipeline is not None):
            raise GraphError("only-for", option="a tf.data service", what="input tfdata (--input)")
        if (self.cache or self.buckets or self.private_threads or served) and style not in (
            None, "all", "tfdata", PIPELINE,
        ):  # fmt: skip
            raise GraphError(
                "only-for",
                option="cache, buckets and private threads",
                what="input tfdata (--input)",
            )
        if self.pipeline is None:
            return STYLES if style in (None, "all") else (str(style),)
        beside = {"all": STYLES, None: ("tfdata",), PIPELINE: ()}.get(style, (str(style),))
        return (*beside, PIPELINE)


PIPELINE = "pipeline"
"""The style of the user's tf.data function."""
PLAIN = InputPipelineOptions()


logger = logging.getLogger("deploykit")

BATCH = 32
"""The default batch size, if neither the model nor an option sets one."""
_MAX_THREADS = 8

_LOOKED_AT = 8  # images whose sizes are compared

STYLES = ("feed", "queue", "tfdata")


@dataclass(frozen=True)
class Pipeline:
    """The data to read, its preprocessing, and its batches."""

    data: Data
    steps: Mapping[str, Steps]
    """The preprocessing steps of each input, by tensor name."""
    batch: int = 32
    whole: bool = False
    """Whether to drop a smaller batch at the end."""
    epochs: int | None = 1
    """The number of epochs; None: endless."""
    threads: int = 1
    """The number of files read in parallel, and of queue threads; 1 keeps the record order."""
    shuffle: int | None = None
    """The seed for shuffling files and neighboring records; None: no shuffling."""
    cache: str = ""
    """Where tf.data caches parsed records: `memory` or a file name; empty: no cache."""
    buckets: tuple[int, ...] = ()
    """The bucket boundaries by which tf.data batches texts of similar length."""
    private_threads: int | None = None
    """The number of private threads of tf.data; None: it uses the session's threads."""
    service: str = ""
    """The address of a tf.data service that reads and parses the data; empty: none."""
    why: Mapping[str, str] = field(default_factory=dict)
    """The source of the value range of each image input, by tensor name."""

    @cached_property
    def features(self) -> dict[str, Feature]:
        """The features that the inputs use."""
        names = dict.fromkeys(steps.feature for steps in self.steps.values())
        return {name: self.data.features[name] for name in names}

    @cached_property
    def fed(self) -> dict[str, str]:
        """The preprocessing of the data for each input, as text."""
        return {split(tensor)[0]: self._in_words(tensor) for tensor in self.steps}

    def log_inputs(self) -> None:
        """Log the preprocessing of the data."""
        log_inputs(self.fed)

    def _in_words(self, tensor: str) -> str:
        steps = self.steps[tensor]
        feature = self.data.features[steps.feature]
        if feature.content != "image":
            done = ", ".join(changes(steps)) or "as they are"
            is_guess = feature.content == "raw" and self.data.usual is not None
            kind = kind_of(feature.dtype, feature.shape, self.data.path)
            return f"{'bytes read as raw ' if is_guess else ''}{kind}, {done}"
        seen = set(_sizes(self.data, steps.feature))
        sizes = f"photos{' of several sizes' if len(seen) > 1 else ''.join(f' {s}' for s in seen)}"
        becomes = "as files" if keeps_files(steps, feature) else ", ".join(changes(steps))
        return f"{sizes}{' ->' if steps.resize else ','} {becomes} ({self.why.get(tensor, '')})"

    @cached_property
    def one_by_one(self) -> bool:
        """Whether records must be parsed one by one: images, and texts of different lengths."""
        return any(
            feature.content == "image" or None in feature.shape
            for feature in self.features.values()
        ) or any(steps.split is not None for steps in self.steps.values())

    @property
    def padded(self) -> bool:
        """Whether batches contain texts of different lengths, padded to the longest."""
        results = (result_of(step, self.features[step.feature]) for step in self.steps.values())
        return any(None in result.shape for result in results)

    @property
    def drops(self) -> bool:
        """Whether batching drops a smaller last batch; with a service, rebatching drops it."""
        return self.whole and not self.service


def log_inputs(fed: Mapping[str, str], logged: Mapping[str, str] | None = None) -> None:
    """Log the preprocessing of files for each input, unless it was logged before."""
    for name, text in fed.items():
        if (logged or {}).get(name) != text:
            logger.info("%s: %s", name, text)


def kind_of(dtype: str, shape: tuple[int | None, ...], path: str) -> str:
    """Return a description of a file's data, such as `float32 28x28x1 from test.npz`."""
    sizes = "x".join("?" if size is None else str(size) for size in shape)
    return f"{dtype}{sizes and ' '}{sizes} from {Path(path).name or path}"


def changes(steps: Steps) -> Iterator[str]:
    """Yield descriptions of preprocessing steps."""
    if steps.resize is not None:
        height, width = steps.resize
        yield f"{width}x{height} bilinear{' by corners' if steps.corners else ''}"
    if steps.crop is not None:
        height, width = steps.crop
        yield f"the middle {width}x{height}"
    if steps.channels == 1:
        yield "grey"
    if steps.split is not None:
        yield "split into tokens"
    if steps.length is not None:
        yield f"at most {steps.length}"
    if steps.channels is not None and steps.range is not None:
        yield str(steps.range)
        return
    if steps.scale is not None:
        yield f"multiplied by {steps.scale:.4g}"
    for numbers, word in ((steps.mean, "less"), (steps.std, "divided by")):
        if numbers:
            yield f"{word} {' '.join(f'{number:.4g}' for number in numbers)}"


def _sizes(data: Data, feature: str) -> Iterator[str]:
    """Yield the sizes of the first few images, if they can be read."""
    files = data.files
    for place in sorted(set(np.linspace(0, len(files) - 1, _LOOKED_AT).round().astype(int))):
        with contextlib.suppress(OSError, Error, DecodeError, StopIteration, IndexError):
            size = size_of(_head(data, files[place], feature))
            if size is not None:
                yield "{}x{}".format(*size)


def _head(data: Data, path: str, feature: str) -> bytes:
    """Return the first bytes of an image: of a file, or of its first record."""
    if data.kind == "images":
        with opened(path) as file:
            return file.read(HEAD)
    record = next(read_records(path, bool(data.compression)))
    return bytes(Example.FromString(record).features.feature[feature].bytes_list.value[0])


def pipeline_for(
    data: Data,
    graph: Graph | None = None,
    *,
    preprocessing: Preprocessing | None = None,
    batch: int | None = None,
    epochs: int | None = None,
    threads: int | None = None,
    piping: InputPipelineOptions = PLAIN,
) -> Pipeline:
    """Return the pipeline from data to the inputs of a graph; without a graph, to all features.

    GraphError: the data does not match the inputs, or `buckets` are set for data without lengths.
    """
    demanded = None if graph is None else demanded_batch(graph)
    if demanded and batch and batch != demanded:
        raise GraphError("batch-fixed", what="the model", fixed=demanded, batch=batch)
    if threads is None:
        threads = max(2, min(_MAX_THREADS, usable_cores()))
    declared = preprocessing or piping.declared(graph)
    data = fitting(data, graph, declared.inputs)
    planned = plan(data, graph, declared)
    pipeline = Pipeline(
        data,
        {tensor: item.steps for tensor, item in planned.items()},
        why={tensor: item.why for tensor, item in planned.items()},
        batch=demanded or batch or BATCH,
        whole=demanded is not None,
        epochs=epochs,
        threads=threads,
        shuffle=0 if piping.shuffle else None,
        cache=os.fspath(piping.cache or ""),
        buckets=tuple(sorted(piping.buckets)),
        private_threads=piping.private_threads,
    )
    if pipeline.buckets and not pipeline.padded:
        raise GraphError("no-texts-to-bucket", source=data.path)
    return pipeline
