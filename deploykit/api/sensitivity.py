"""How much noise each layer of a model brings in 8 bits."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from deploykit.api.public import Command, public
from deploykit.freezing.open_model import open_model
from deploykit.input.samples import open_samples
from deploykit.quantization.fake_quant.sensitivity import stated_sensitivity
from deploykit.quantization.sensitivity import STEPS, Sensitivity, measure_sensitivity
from deploykit.rewriting.fake_quant_graph import states_weights
from deploykit.rewriting.pipelines import PREPARE_LAYERS
from deploykit.rewriting.transform import run_steps
from deploykit.text.progress import working
from deploykit.transforms.core.display.flag import ALLOW_OP, PREPROCESS, Flag
from deploykit.transforms.core.int8.isa import Isa
from deploykit.transforms.core.int8.ranges import check_ranges
from deploykit.verification.public_types import DataLike, ModelLike, PreprocessLike


@public(Command(heading="Ranking", runs_graph=True), interface=())
def sensitivity(
    model: ModelLike,
    calibration: Annotated[DataLike, Flag("--calibration", metavar="DATA", heading="Data")],
    *,
    preprocess: Annotated[PreprocessLike | None, PREPROCESS] = None,
    ranges: str | os.PathLike[str] | None = None,
    isa: Isa = "auto",
    allow_ops: Annotated[Sequence[str], ALLOW_OP] = (),
) -> Sensitivity:
    """Rank the layers by the noise that each adds in int8.

    Optimizes and calibrates the model like quantize, then runs it with one int8 layer at a time and
    measures the signal-to-noise ratio of the outputs. The lower the ratio, the noisier the layer.
    Layers without an int8 form are listed with the reason.

    Args:
        model: whatever `open_model` takes.
        calibration: Samples: a .npz file of arrays by input name, a folder of TFRecords, images or
            CSV files, or DIR/NAME if DIR contains records of several names. Every fourth sample is
            held out to measure the noise.
        ranges: Ranges of the optimized model from deploykit calibrate [default: measured on the
            samples].
        isa: Instruction set of the target machine; auto: that of this machine.

    FileError, GraphError: the samples do not fit, or lead to NaN or Inf. MismatchError: the ranges
    are of another model.

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
        samples = open_samples(calibration, graph, preprocess)
        known = None if ranges is None else os.fspath(ranges)
        if known is not None:
            check_ranges(known, opened.source, opened.sha256)
        if known is None and states_weights(graph):
            found = stated_sensitivity(graph, samples, isa, work)
        else:
            found = measure_sensitivity(optimized, samples, ranges=known, isa=isa, work=work)
    return replace(found, model=opened, nodes=len(optimized), fed=samples.fed)
