"""calibrate and sensitivity: tensor ranges and the int8 noise of each layer."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from deploykit.api.public import Command, public
from deploykit.data.preprocessing import with_header
from deploykit.data.samples import open_feeds, open_samples
from deploykit.importers.open_model import ModelLike, open_model, path_of
from deploykit.pipelines.int8 import states_weights
from deploykit.pipelines.transform import PREPARE_LAYERS, run_steps
from deploykit.quantization.calibration import Calibration, RangeMethod
from deploykit.quantization.calibration import calibrate as observe
from deploykit.quantization.qat import stated_sensitivity
from deploykit.quantization.sensitivity import STEPS, Sensitivity, measure_sensitivity
from deploykit.rendering.progress import working
from deploykit.storage.csv_files import HeaderRule
from deploykit.storage.files import check_output, write
from deploykit.transforms.common.flag import (
    ALLOW_OP,
    COLUMNS,
    FORCE,
    HEADER,
    PREPROCESS,
    Flag,
    output_flag,
)
from deploykit.transforms.engines.engines import MAX_BATCH
from deploykit.transforms.int8.int8_kernels import Isa
from deploykit.transforms.int8.ranges import check_ranges
from deploykit.verification.samples import DataLike, PathLike, PreprocessLike


@public(Command(heading="Calibration", runs_graph=True, writes_result=False))
def calibrate(
    model: ModelLike,
    data: Annotated[DataLike, Flag("--data", metavar="DATA", heading="Data")],
    *,
    preprocess: Annotated[PreprocessLike | None, PREPROCESS] = None,
    header: Annotated[HeaderRule, HEADER] = "auto",
    columns: Annotated[Mapping[str, str] | None, COLUMNS] = None,
    method: RangeMethod = "minmax",
    batch: Annotated[int | None, Flag(at_most=MAX_BATCH)] = None,
    allow_ops: Annotated[tuple[str, ...], ALLOW_OP] = (),
    output: Annotated[PathLike | None, output_flag(".ranges.json", "text output")] = None,
    force: Annotated[bool, FORCE] = False,
) -> Calibration:
    """Record the value range of each tensor of a model.

    Runs the model on the data and writes a JSON file that can be edited. It contains the smallest
    and largest value of each float tensor, and the mean and smallest value of each channel.
    Quantization maps these ranges to int8.

    Args:
        model: any model that `open_model` accepts. A GraphDef file is used unchanged; any other
            model is frozen first.
        data: At least 64 representative samples: a .npz file of arrays by input name, a folder of
            TFRecords, images or CSV files, or DIR/NAME if DIR contains records of several names.
        method: minmax: the full range of values; mse: the range with the smallest mean squared int8
            error; it runs the samples twice.
        batch: Samples in a batch [default: the model's fixed batch, or 8].
        output: the `.json` file for the ranges, which `transform` and `sensitivity` read.

    FileError, GraphError: the samples do not match the inputs, there are none, or an activation
    contains NaN or Inf.

    Commands:
        deploykit calibrate fashion.pb --data models/fashion/test_1000.npz
        deploykit calibrate fashion.pb --data models/fashion/test_1000.npz
            --method mse -o mse.json

    Example:
        >>> found = deploykit.calibrate("fashion.keras", "test_1000.npz", batch=100)
        >>> found.ranges.samples
        1000
    """
    if output is not None:
        check_output(output, force, *path_of(model))
    with working("calibrate") as work:
        opened = open_model(model)
        opened.refuse_effects(allow_ops)
        feeds, fed = open_feeds(data, opened.graph, with_header(preprocess, header, columns), batch)
        result = observe(
            opened.graph, feeds, method=method, model_sha256=opened.sha256, advance=work
        )
    size = None
    if output is not None:
        size = write(output, [result.ranges.text().encode()], force)
    return replace(result, model=opened, bytes=size, fed=fed)


@public(Command(heading="Ranking", runs_graph=True), interface=())
def sensitivity(
    model: ModelLike,
    calibration: Annotated[DataLike, Flag("--calibration", metavar="DATA", heading="Data")],
    *,
    preprocess: Annotated[PreprocessLike | None, PREPROCESS] = None,
    header: Annotated[HeaderRule, HEADER] = "auto",
    columns: Annotated[Mapping[str, str] | None, COLUMNS] = None,
    ranges: str | os.PathLike[str] | None = None,
    isa: Isa = "auto",
    allow_ops: Annotated[Sequence[str], ALLOW_OP] = (),
) -> Sensitivity:
    """Rank the layers by the noise that each adds in int8.

    Optimizes and calibrates the model like quantize. Then runs it with one int8 layer at a time and
    measures the signal-to-noise ratio of the outputs in dB. The lower the ratio, the noisier the
    layer. Layers that cannot run in int8 are listed with the reason.

    Args:
        model: any model that `open_model` accepts.
        calibration: Samples: a .npz file of arrays by input name, a folder of TFRecords, images or
            CSV files, or DIR/NAME if DIR contains records of several names. Every fourth sample is
            held out to measure the noise, or whole groups of related samples.
        ranges: Ranges of the optimized model from deploykit calibrate [default: measured on the
            samples].
        isa: Instruction set of the target CPU; auto: that of this machine.

    FileError, GraphError: the samples do not match the inputs, or lead to NaN or Inf.
    MismatchError: the ranges belong to another model.

    Commands:
        deploykit sensitivity model.pb --calibration models/fashion/test_1000.npz
        deploykit sensitivity model.pb --calibration photos --preprocess 0..1 --top 10

    Example:
        >>> found = deploykit.sensitivity("fashion.keras", "test_1000.npz")
        >>> len(found.ranking), found.samples
        (12, (750, 16))
    """
    with working("sensitivity", *STEPS) as work:
        opened = open_model(model)
        graph = opened.frozen
        opened.refuse_effects(allow_ops)
        optimized = run_steps(graph, PREPARE_LAYERS)[0]
        samples = open_samples(calibration, graph, with_header(preprocess, header, columns))
        known = None if ranges is None else os.fspath(ranges)
        if known is not None:
            check_ranges(known, opened.source, opened.sha256)
        if known is None and states_weights(graph):
            result = stated_sensitivity(graph, samples, isa, work)
        else:
            result = measure_sensitivity(optimized, samples, ranges=known, isa=isa, work=work)
    return replace(result, model=opened, nodes=len(optimized), fed=samples.fed)
