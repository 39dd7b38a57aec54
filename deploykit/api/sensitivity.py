"""How much noise each layer of a model brings in 8 bits."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from deploykit.freezing.open_model import open_model
from deploykit.input.samples import open_samples
from deploykit.quantization.fake_quant.sensitivity import stated_sensitivity
from deploykit.quantization.sensitivity import STEPS, Sensitivity, measure_sensitivity
from deploykit.rewriting.fake_quant_graph import states_weights
from deploykit.rewriting.pipelines import PREPARE_LAYERS
from deploykit.rewriting.transform import run_steps
from deploykit.text.progress import working
from deploykit.transforms.core.int8.ranges import check_ranges


def sensitivity(
    model: Any,
    calibration: Any,
    *,
    preprocess: Any = None,
    ranges: str | os.PathLike[str] | None = None,
    isa: str = "auto",
    allowed_ops: Sequence[str] = (),
) -> Sensitivity:
    """Optimize and calibrate a model as `quantize` does, and rank its layers by their noise.

    Each layer alone is put in 8 bits and the signal-to-noise ratio of the answers is measured, in
    dB: the lower, the noisier. Layers that cannot be in 8 bits are listed with the reason. Layers
    of a quantization-aware model have the scales that it states, and are compared with it.

    Args:
        model: whatever `open_model` takes.
        calibration: samples, as `quantize` takes them; every fourth is held out to judge by.
        preprocess: what becomes of the features of files: a JSON file, what it holds, or the
            range of photos, such as `0..1`.
        ranges: a file of ranges that `calibrate` wrote for this model; for its layers to be found
            there, it is an optimized one. Default: they are found on the data.
        isa: the instruction set that the 8-bit layers are made for; auto is this machine's.
        allowed_ops: ops that are run although they act on files or processes.

    FileError, GraphError: the samples do not fit, or lead to NaN or Inf. MismatchError: the ranges
    are of another model.

    Example:
        >>> found = deploykit.sensitivity("fashion.keras", "test_1000.npz")
        >>> len(found.ranking), found.samples
        (12, (750, 16))
    """
    with working("sensitivity", *STEPS) as work:
        opened = open_model(model)
        graph = opened.frozen
        opened.refuse_effects(allowed_ops)
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
