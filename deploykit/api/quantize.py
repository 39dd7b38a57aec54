"""A model in 8 bits: with calibration data, or with its weights alone."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from deploykit.api.comparison import DEFAULT as COMPARISON
from deploykit.api.comparison import VerifyOptions
from deploykit.api.public import Command, public
from deploykit.freezing.open_model import OpenedModel, open_model
from deploykit.freezing.sidecar import about, with_engine
from deploykit.input.samples import open_samples
from deploykit.photos.class_names import labels_from
from deploykit.quantization.budget import Budget
from deploykit.quantization.fake_quant.search import StatedData, quantize_fake_quants
from deploykit.quantization.preconditions import is_quantized, refuse_quantized
from deploykit.quantization.requested import DEFAULT, QuantizeOptions
from deploykit.quantization.result import Quantized
from deploykit.quantization.search import quantize_calibrated
from deploykit.quantization.search_task import STEPS
from deploykit.quantization.weights import WeightsInt8, quantize_stored
from deploykit.rewriting.fake_quant_graph import has_fake_quants, states_weights
from deploykit.rewriting.pipelines import OPTIMIZE, PREPARE_LAYERS, quantize_string
from deploykit.rewriting.proof import by_calibration
from deploykit.rewriting.rewrite import OutputFiles, rewrite
from deploykit.rewriting.transform import run_steps
from deploykit.text.progress import Work, working
from deploykit.transforms.core.display.flag import Flag
from deploykit.transforms.core.engines.openvino_model import Compiling
from deploykit.transforms.core.errors import (
    GraphError,
    NotQuantizedError,
    StepError,
    UnverifiedError,
    naming,
)
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.running.child import reused_children
from deploykit.verification.bar import QUANTIZED_BAR_DB
from deploykit.verification.engines.engine_check import compared_in
from deploykit.verification.public_types import DataLike, ModelLike, PathLike
from deploykit.verification.sample_inputs import made_up_feeds
from deploykit.verification.samples import Dataset
from deploykit.verification.verify import Verification

RUN_ON = 16  # held-out samples, on which the file is run once more
RUN_BAR_DB = 10.0  # a few samples scatter about the bar of all; a wrong file is at 0 dB or below


@public(
    Command(
        heading="Quantization",
        runs_graph=True,
        writes_result=False,
    ),
    models="model",
)
def quantize(
    model: ModelLike,
    how: QuantizeOptions = DEFAULT,
    *,
    comparison: VerifyOptions = COMPARISON,
    calibration: Annotated[
        DataLike | None, Flag(metavar="DATA", heading="With --calibration")
    ] = None,
    evaluation: Annotated[
        DataLike | None, Flag(hidden="--eval", metavar="DATA", heading="With --calibration")
    ] = None,
    output: Annotated[
        PathLike | None,
        Flag("-o --output", format="output", heading="Output", beside=".quantized.pb"),
    ] = None,
    force: Annotated[bool, Flag(heading="Output")] = False,
) -> Graph:
    """Optimize a model and quantize it to int8.

    With `calibration`, layers run in int8. Layers that are too inaccurate or slower in int8 are
    kept in float32. Without `calibration`, only the weights are stored in 8 bits: the file shrinks
    to about a quarter, and the speed stays the same.

    A quantization-aware model states its int8 scales (fake-quants, as TF-MOT leaves them). Its
    layers run in int8 with these scales, without `calibration`.

    int8 is kept unless it is significantly slower than float32 or too inaccurate. If int8 is not
    kept, or there is nothing to quantize, the command writes nothing and exits with status 5.

    The result is compared with the original before it is written. After Ctrl-C, the same command
    continues the search.

    Args:
        model: whatever `open_model` takes.
        how: what the 8-bit graph has to be.
        comparison: without calibration, on which inputs the result is compared with the original.
        calibration: At least 64 representative samples: a .npz file of arrays by input name, a
            folder of TFRecords, images or CSV files, or DIR/NAME if DIR contains records of several
            names. Every fourth sample is held out to check the result.
        evaluation: Samples with labels, to measure `metric`.
        output: a `.pb` file to write too. With calibration, what is found meanwhile is kept beside
            it, and the same call goes on after an interruption.
        force: Replace an existing output file.

    NotQuantizedError: float32 is the right result, as int8 is significantly slower, too inaccurate,
    or there is nothing to quantize; with `allow_float`, the optimized float32 graph is returned.
    VerificationError: the float model's own answers cannot be right. GraphError: the samples do not
    fit, or lead to NaN or Inf; an option does nothing here, or an engine cannot be had or computes
    the model otherwise than TensorFlow. RefusedError: the model acts on files or processes.

    Commands:
        deploykit quantize fashion.pb -o weights.pb
        deploykit quantize fashion.pb -o int8.pb
            --calibration models/fashion/test_1000.npz

    Example:
        >>> graph = deploykit.quantize("fashion.keras", min_sqnr=20)
        >>> graph.report.verification.passed
        True
    """
    budget = Budget(how.budget)  # for all of it
    target = OutputFiles(output, force)
    if calibration is not None:
        _refuse_uncalibrated(comparison)
    target.check(model)
    return _quantized(model, how, (calibration, evaluation), comparison, target, budget)


def _quantized(
    model: ModelLike,
    how: QuantizeOptions,
    data: tuple[DataLike | None, DataLike | None],
    comparison: VerifyOptions,
    target: OutputFiles,
    budget: Budget,
) -> Graph:
    """Return a model quantized in the mode that it, the options and the data ask for."""
    is_calibrated, is_evaluated = (each is not None for each in data)
    mode, needs_data = "static", None
    try:
        mode = how.resolved_mode(is_calibrated, is_evaluated)
    except GraphError as error:
        if is_calibrated or how.mode not in ("auto", "static"):
            raise
        needs_data = error  # but a model with fake-quants needs none
    with working("quantize", *(STEPS if is_calibrated else ())) as work:
        opened = open_model(model)
        is_stated = states_weights if is_calibrated else has_fake_quants
        if how.mode in ("auto", "static") and is_stated(opened.frozen):
            how.resolved_mode(is_calibrated, is_evaluated, states_scales=True)
            return _stated(opened, how, data, comparison, target, work)
        if needs_data is not None:
            raise needs_data
        if not is_calibrated:
            return _stored(opened, how, mode, comparison, target, work)
        return _calibrated(opened, how, data, comparison, target, work, budget)


def _stored(
    opened: OpenedModel,
    how: QuantizeOptions,
    mode: str,
    comparison: VerifyOptions,
    target: OutputFiles,
    work: Work,
) -> Graph:
    """Return a graph whose weights are stored in int8, or the float32 graph where that is allowed.

    NotQuantizedError: the float32 graph would be the result, and is not allowed.
    """
    write = _nodes if mode == "nodes" else _weights
    try:
        return write(opened, how, comparison, target, work)
    except NotQuantizedError as error:
        why = str(error)
    except StepError as error:
        if not error.step.startswith(("quantize", "round")):
            raise
        why = f"int8 is too inaccurate: {error.reason}"
    report = WeightsInt8(opened, len(opened.frozen), is_float=True, reason=why)
    _require_allowed(opened, how, report)
    proof = comparison.proof(opened, stops_at_doubt=not how.allow_low_accuracy)
    result = rewrite(opened, opened.frozen, OPTIMIZE, target, work, proof)
    result.report = WeightsInt8(**vars(result.report), is_float=True, reason=why)
    return result


def _require_allowed(
    opened: OpenedModel, how: QuantizeOptions, report: Quantized | WeightsInt8
) -> None:
    """Raise NotQuantizedError for a float32 graph that is not allowed."""
    if report.is_float and not how.allow_float:
        raise NotQuantizedError(
            "float32-is-right", report=report, source=opened.source, reason=report.reason
        )


def _nodes(
    opened: OpenedModel,
    how: QuantizeOptions,
    comparison: VerifyOptions,
    target: OutputFiles,
    work: Work,
) -> Graph:
    """Return a graph quantized as the Graph Transform Tool did it."""
    bar = QUANTIZED_BAR_DB if how.min_sqnr is None else how.min_sqnr
    steps = quantize_string(how.minimum_size, how.skip, nodes=True)
    proof = comparison.proof(opened, bar, stops_at_doubt=not how.allow_low_accuracy)

    def require(result: Graph) -> None:
        if not is_quantized(result):
            raise NotQuantizedError("empty-quantization", reason="no op has an int8 form")

    result = rewrite(opened, opened.frozen, steps, target, work, proof, require)
    reason = "layers run in int8 with the ops of the Graph Transform Tool"
    result.report = WeightsInt8(**vars(result.report), reason=reason)
    return result


def _weights(
    opened: OpenedModel,
    how: QuantizeOptions,
    comparison: VerifyOptions,
    target: OutputFiles,
    work: Work,
) -> Graph:
    """Return a graph whose weights are stored in int8."""
    graph, bar = opened.frozen, QUANTIZED_BAR_DB if how.min_sqnr is None else how.min_sqnr
    samples = None
    if comparison.data is None:
        made_up = made_up_feeds(graph, comparison.input_range, comparison.shapes)[0]
    else:
        opened.refuse_effects(comparison.allow_ops)
        how_read = comparison.preprocess, comparison.labels
        samples, made_up = open_samples(comparison.data, graph, how_read[0], labels=how_read[1]), []
        comparison = replace(comparison, data=samples, preprocess=None)
    proof = comparison.proof(opened, bar, stops_at_doubt=not how.allow_low_accuracy)
    return quantize_stored(opened, how, samples, made_up, proof, target, work)


def _refuse_uncalibrated(comparison: VerifyOptions) -> None:
    """Raise GraphError for an option that says what the result is compared on without samples."""
    given = {
        "--data": comparison.data is not None,
        "--shape": bool(comparison.shapes),
        "--input-range": comparison.input_range != COMPARISON.input_range,
    }
    for option, is_given in given.items():
        if is_given:
            raise GraphError("only-for", option=option, what="quantizing without --calibration")


@reused_children()
def _calibrated(
    opened: OpenedModel,
    how: QuantizeOptions,
    data: tuple[DataLike | None, DataLike | None],
    comparison: VerifyOptions,
    target: OutputFiles,
    work: Work,
    budget: Budget,
) -> Graph:
    """Return a graph whose layers compute in 8 bits where that is right and faster."""
    graph = opened.frozen
    refuse_quantized(graph)
    opened.refuse_effects(comparison.allow_ops)
    preprocess, labels = comparison.preprocess, comparison.labels
    group_by = how.group_by or ""
    own = group_by if data[1] is None else ""
    calibration = open_samples(data[0], graph, preprocess, labels=labels, group_by=own)
    evaluation, fed = None, dict(calibration.fed)
    if data[1] is not None:
        evaluation = open_samples(
            data[1], graph, preprocess, said=fed, labels=labels, group_by=group_by
        )
        fed = {**evaluation.fed, **fed}
    found = quantize_calibrated(
        run_steps(graph, PREPARE_LAYERS)[0],
        calibration,
        how,
        evaluation=evaluation,
        state=None if target.output is None else f"{target.output}.state",
        work=work,
        budget=budget,
    )
    found = replace(found, model=opened, nodes=len(graph), fed=fed)
    return _written(opened, found, how, calibration, comparison, target, work)


@reused_children()
def _stated(
    opened: OpenedModel,
    how: QuantizeOptions,
    data: tuple[DataLike | None, DataLike | None],
    comparison: VerifyOptions,
    target: OutputFiles,
    work: Work,
) -> Graph:
    """Return a graph whose layers run in int8 by the scales that a model's fake-quants state."""
    graph = opened.frozen
    opens: dict[str, Any] = {"preprocess": comparison.preprocess, "labels": comparison.labels}
    opened.refuse_effects(comparison.allow_ops)
    given = comparison.data if data[0] is None else data[0]
    samples = None if given is None else open_samples(given, graph, **opens)
    if samples is None:
        known = StatedData(made_up_feeds(graph, comparison.input_range, comparison.shapes)[0])
    elif data[0] is None:
        known = StatedData(samples.feeds(), timed_with=samples)
    else:
        split = samples.split()
        known = StatedData(
            split.held_out.feeds(), split.calibrating.feeds(), timed_with=split.held_out
        )
    if data[1] is not None:
        known = replace(known, evaluation=open_samples(data[1], graph, **opens))
    found = quantize_fake_quants(graph, known, how, work)
    fed = {} if samples is None else samples.fed
    found = replace(found, model=opened, nodes=len(graph), fed=fed)
    return _written(opened, found, how, samples, comparison, target, work)


def _written(
    opened: OpenedModel,
    found: Quantized,
    how: QuantizeOptions,
    samples: Dataset | None,
    comparison: VerifyOptions,
    target: OutputFiles,
    work: Work,
) -> Graph:
    """Compare what was found with the model, write it, and return it.

    NotQuantizedError: the float32 graph would be the result, and is not allowed.
    """
    graph, labels = opened.frozen, comparison.labels
    _require_allowed(opened, how, found)
    if found.use is not None:
        _require_right(opened, found, samples)
    result = found.graph.copy()
    known = about(graph)
    if samples is not None:
        comparison = replace(
            comparison, data=samples.split().held_out.spread(RUN_ON), preprocess=None
        )
        if samples.preprocessing is not None:
            known = replace(known, preprocessing=samples.preprocessing)
    if labels is not None:
        known = replace(known, labels=tuple(labels_from(labels)))
    result.about = known
    if found.use is not None:
        result.about = with_engine(result, found.use)
    proof = comparison.proof(opened, None if found.is_float else RUN_BAR_DB)

    def check(path: Path | None) -> Verification:
        work("run the file", 0)
        try:
            return proof.checked(result, path)
        except UnverifiedError as error:
            raise by_calibration(error) from None

    count, verification = target.write(result, None if target.output is None else check)
    result.report = replace(found, bytes=count, verification=verification)
    return result


def _require_right(opened: OpenedModel, found: Quantized, given: Dataset | None) -> None:
    """Raise where the engine does not give TensorFlow's answers to all of the graph to be written.

    The graph that the search began with was compared before. GraphError: the engine refuses it.
    VerificationError: an output departs, which is named.
    """
    assert found.use is not None
    if not found.is_float:
        samples = None if given is None else given.split().held_out.spread(RUN_ON)
        how = Compiling(precision=found.use.precision)
        with naming(opened.source):
            compared_in(
                found.graph, how, engine=found.use.engine, data=samples, float_graph=opened.frozen
            ).require()
