"""quantize: int8 models, with calibration data or with int8 weights only."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from deploykit.api.comparison import DEFAULT as COMPARISON
from deploykit.api.comparison import VerifyOptions
from deploykit.api.public import Command, public
from deploykit.data.samples import open_samples
from deploykit.importers.metadata_file import about, with_engine
from deploykit.importers.open_model import ModelLike, OpenedModel
from deploykit.pipelines.int8 import has_fake_quants, states_weights
from deploykit.pipelines.rewrite import OutputFiles, Proof, by_calibration, rewrite
from deploykit.pipelines.transform import OPTIMIZE, PREPARE_LAYERS, quantize_string, run_steps
from deploykit.quantization.calibration import KnownRanges
from deploykit.quantization.qat import StatedData, quantize_fake_quants
from deploykit.quantization.quantize_options import (
    DEFAULT,
    QuantizeOptions,
    is_quantized,
    refuse_quantized,
)
from deploykit.quantization.result import Quantized
from deploykit.quantization.search import quantize_calibrated
from deploykit.quantization.search_task import STEPS, Budget
from deploykit.quantization.weights_only import WeightsInt8, quantize_stored
from deploykit.rendering.progress import Work, working
from deploykit.storage.image_files import labels_from
from deploykit.transforms.common.errors import (
    GraphError,
    NotQuantizedError,
    StepError,
    UnverifiedError,
    naming,
)
from deploykit.transforms.common.flag import FORCE, Flag, output_flag
from deploykit.transforms.engines.openvino_model import Compiling
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.child_process import reused_children
from deploykit.verification.engine_check import compared_in
from deploykit.verification.feeds import Feed
from deploykit.verification.samples import DataLike, Dataset, PathLike
from deploykit.verification.synthetic.sample_inputs import made_up_feeds
from deploykit.verification.tolerance import QUANTIZED_BAR_DB
from deploykit.verification.verify import Verification

RUN_ON = 16  # held-out samples for the final run of the written file
RUN_BAR_DB = 10.0  # lenient, as few samples have high variance; a wrong file is at most 0 dB


@public(Command(heading="Quantization", runs_graph=True, writes_result=False), interface=())
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
    output: Annotated[PathLike | None, output_flag(".quantized.pb")] = None,
    force: Annotated[bool, FORCE] = False,
) -> Graph:
    """Optimize a model and quantize it to int8.

    With `calibration`, layers run in int8. Layers that are too inaccurate or slower in int8 are
    kept in float32. Without `calibration`, only the weights are stored in int8. The file shrinks
    to about a quarter, and the speed stays the same.

    A quantization-aware model contains its int8 scales, in FakeQuant ops as TF-MOT writes them. Its
    layers run in int8 with these scales, without `calibration`.

    int8 is kept unless it is significantly slower than float32 or too inaccurate. If int8 is not
    kept, or there is nothing to quantize, the command writes nothing and exits with status 5.

    The result is compared with the original before it is written. After Ctrl-C, the same command
    resumes the search.

    Args:
        model: any model that `open_model` accepts.
        how: the mode, the accuracy limits and the target of quantization.
        comparison: the inputs on which the result is compared with the original, without
            calibration data.
        calibration: At least 64 representative samples: a .npz file of arrays by input name, a
            folder of TFRecords, images or CSV files, or DIR/NAME if DIR contains records of several
            names. Every fourth sample is held out to check the result, or whole groups of related
            samples, such as crops of one picture.
        evaluation: Samples with labels, to measure `metric`.
        output: also write the graph to this `.pb` file. With calibration, the state of the search
            is stored next to it, and the same call resumes after an interruption.

    NotQuantizedError: float32 is the right result, because int8 is significantly slower or too
    inaccurate, or nothing can be quantized. With `allow_float`, the optimized float32 graph is
    returned instead. VerificationError: the outputs of the float32 model are not usable.
    GraphError: the samples do not match the inputs, or lead to NaN or Inf; an option has no effect;
    or an engine is not available or its outputs differ from TensorFlow's. RefusedError: an op acts
    on files or processes.

    Commands:
        deploykit quantize fashion.pb -o weights.pb
        deploykit quantize fashion.pb -o int8.pb
            --calibration models/fashion/test_1000.npz

    Example:
        >>> graph = deploykit.quantize("fashion.keras", min_sqnr=20)
        >>> graph.report.verification.passed
        True
    """
    budget = Budget(how.budget)  # includes reading the model
    target = OutputFiles(output, force)
    if calibration is not None:
        _refuse_uncalibrated(comparison)
    target.check(model)
    return quantize_model(model, how, (calibration, evaluation), comparison, target, budget)


def quantize_model(
    model: ModelLike,
    how: QuantizeOptions,
    data: tuple[DataLike | None, DataLike | None],
    comparison: VerifyOptions,
    target: OutputFiles,
    budget: Budget,
    known: KnownRanges | None = None,
) -> Graph:
    """Return a quantized model, in the mode that the model, the options and the data determine.

    `data` contains the calibration and the evaluation samples. `known` is a calibration of the
    model on the samples that are not held out. Raises the errors of `quantize`.
    """
    calibration, evaluation = data
    is_calibrated, is_evaluated = calibration is not None, evaluation is not None
    mode, needs_data = "static", None
    try:
        mode = how.resolved_mode(is_calibrated, is_evaluated)
    except GraphError as error:
        if is_calibrated or how.mode not in ("auto", "static"):
            raise
        needs_data = error  # raised later, unless the model has FakeQuant ops
    with working("quantize", *(STEPS if is_calibrated else ())) as work:
        task = _Quantizing(comparison.opened(model), how, comparison, target, work)
        is_stated = states_weights if is_calibrated else has_fake_quants
        if how.mode in ("auto", "static") and is_stated(task.graph):
            how.resolved_mode(is_calibrated, is_evaluated, states_scales=True)
            return task.stated(calibration, evaluation)
        if needs_data is not None:
            raise needs_data
        if calibration is None:
            return task.stored(mode)
        return task.calibrated(calibration, evaluation, budget, known)


@dataclass(frozen=True)
class _Quantizing:
    """One quantization: the model, the options, the comparison inputs and the output file."""

    opened: OpenedModel
    how: QuantizeOptions
    comparison: VerifyOptions
    target: OutputFiles
    work: Work

    @property
    def graph(self) -> Graph:
        """The frozen graph of the model."""
        return self.opened.frozen

    def stored(self, mode: str) -> Graph:
        """Return a graph whose weights are stored in int8, or the float32 graph if that is allowed.

        NotQuantizedError: the float32 graph would be the result, and is not allowed.
        """
        try:
            return self._nodes() if mode == "nodes" else self._weights()
        except NotQuantizedError as error:
            why = str(error)
        except StepError as error:
            if not error.step.startswith(("quantize", "round")):
                raise
            why = f"int8 is too inaccurate: {error.reason}"
        report = WeightsInt8(self.opened, len(self.graph), is_float=True, reason=why)
        self._require_allowed(report)
        result = self._rewritten(OPTIMIZE)
        result.report = WeightsInt8(**vars(result.report), is_float=True, reason=why)
        return result

    def _nodes(self) -> Graph:
        """Return a graph quantized like in the Graph Transform Tool."""

        def require(result: Graph) -> None:
            if not is_quantized(result):
                raise NotQuantizedError("empty-quantization", reason="no op has an int8 form")

        steps = quantize_string(self.how.minimum_size, self.how.skip, nodes=True)
        result = self._rewritten(steps, self._bar, require)
        reason = "layers run in int8 with the ops of the Graph Transform Tool"
        result.report = WeightsInt8(**vars(result.report), reason=reason)
        return result

    def _weights(self) -> Graph:
        """Return a graph whose weights are stored in int8."""
        comparison, samples, made_up = self.comparison, None, list[Feed]()
        if comparison.data is None:
            made_up = self._made_up()
        else:
            self.opened.refuse_effects(comparison.allow_ops)
            samples = self._samples(comparison.data)
            comparison = replace(comparison, data=samples, preprocess=None)
        proof = self._proof(comparison, self._bar)
        return quantize_stored(
            self.opened, self.how, samples, made_up, proof, self.target, self.work
        )

    @reused_children()
    def calibrated(
        self,
        calibration: DataLike,
        evaluation: DataLike | None,
        budget: Budget,
        known: KnownRanges | None,
    ) -> Graph:
        """Return a graph whose layers run in int8 where that is accurate and faster."""
        refuse_quantized(self.graph)
        self.opened.refuse_effects(self.comparison.allow_ops)
        group_by = self.how.group_by or ""
        samples = self._samples(calibration, group_by=group_by if evaluation is None else "")
        labelled, fed = None, dict(samples.fed)
        if evaluation is not None:
            labelled = self._samples(evaluation, logged=fed, group_by=group_by)
            fed = {**labelled.fed, **fed}
        result = quantize_calibrated(
            run_steps(self.graph, PREPARE_LAYERS)[0],
            samples,
            self.how,
            evaluation=labelled,
            state=None if self.target.output is None else f"{self.target.output}.state",
            work=self.work,
            budget=budget,
            known=known,
        )
        return self._written(result, samples, fed)

    @reused_children()
    def stated(self, calibration: DataLike | None, evaluation: DataLike | None) -> Graph:
        """Return a graph whose layers run in int8 with the scales of its FakeQuant ops."""
        self.opened.refuse_effects(self.comparison.allow_ops)
        given = self.comparison.data if calibration is None else calibration
        samples = None if given is None else self._samples(given)
        if samples is None:
            known = StatedData(self._made_up())
        elif calibration is None:
            known = StatedData(
                samples.feeds(), related=samples.with_relations.related, timed_with=samples
            )
        else:
            split = samples.split()
            known = StatedData(
                split.held_out.feeds(),
                split.calibrating.feeds(),
                related=split.held_out.related,
                timed_with=split.held_out,
            )
        if evaluation is not None:
            known = replace(known, evaluation=self._samples(evaluation))
        result = quantize_fake_quants(self.graph, known, self.how, self.work)
        return self._written(result, samples, {} if samples is None else samples.fed)

    def _written(
        self, quantized: Quantized, samples: Dataset | None, fed: Mapping[str, str]
    ) -> Graph:
        """Compare the result with the model, write it, and return it.

        NotQuantizedError: the float32 graph would be the result, and is not allowed.
        """
        quantized = replace(quantized, model=self.opened, nodes=len(self.graph), fed=fed)
        self._require_allowed(quantized)
        if quantized.use is not None:
            self._require_right(quantized, samples)
        result, comparison, known = quantized.graph.copy(), self.comparison, about(self.graph)
        if samples is not None:
            held_out = samples.split().held_out.spread(RUN_ON)
            comparison = replace(comparison, data=held_out, preprocess=None)
            if samples.preprocessing is not None:
                known = replace(known, preprocessing=samples.preprocessing)
        if comparison.labels is not None:
            known = replace(known, labels=tuple(labels_from(comparison.labels)))
        result.about = known
        if quantized.use is not None:
            result.about = with_engine(result, quantized.use)
        proof = comparison.proof(self.opened, None if quantized.is_float else RUN_BAR_DB)

        def check(path: Path | None) -> Verification:
            self.work("run the file", 0)
            try:
                return proof.checked(result, path)
            except UnverifiedError as error:
                raise by_calibration(error) from None

        is_written = self.target.output is not None
        count, verification = self.target.write(result, check if is_written else None)
        result.report = replace(quantized, bytes=count, verification=verification)
        return result

    def _require_allowed(self, report: Quantized | WeightsInt8) -> None:
        """Raise NotQuantizedError for a float32 graph that is not allowed."""
        if report.is_float and not self.how.allow_float:
            raise NotQuantizedError(
                "float32-is-right", report=report, source=self.opened.source, reason=report.reason
            )

    def _require_right(self, quantized: Quantized, given: Dataset | None) -> None:
        """Raise an error if the engine's outputs of the final graph differ from TensorFlow's.

        The graph at the start of the search was already compared. GraphError: the engine rejects
        the graph. VerificationError: the named output differs.
        """
        assert quantized.use is not None
        if quantized.is_float:
            return
        samples = None if given is None else given.split().held_out.spread(RUN_ON)
        how = Compiling(precision=quantized.use.precision)
        with naming(self.opened.source):
            compared_in(
                quantized.graph,
                how,
                engine=quantized.use.engine,
                data=samples,
                float_graph=self.graph,
            ).require()

    @property
    def _bar(self) -> float:
        return QUANTIZED_BAR_DB if self.how.min_sqnr is None else self.how.min_sqnr

    def _proof(self, comparison: VerifyOptions, bar: float | None) -> Proof:
        stops_at_doubt = not self.how.allow_low_accuracy
        return comparison.proof(self.opened, bar, stops_at_doubt=stops_at_doubt)

    def _rewritten(
        self,
        steps: str,
        bar: float | None = None,
        require: Callable[[Graph], object] = lambda result: None,
    ) -> Graph:
        proof = self._proof(self.comparison, bar)
        return rewrite(self.opened, self.graph, steps, self.target, self.work, proof, require)

    def _samples(self, data: DataLike, **more: Any) -> Dataset:
        comparison = self.comparison
        return open_samples(data, self.graph, comparison.read_by, labels=comparison.labels, **more)

    def _made_up(self) -> list[Feed]:
        return made_up_feeds(self.graph, self.comparison.input_range, self.comparison.shapes)[0]


def _refuse_uncalibrated(comparison: VerifyOptions) -> None:
    """Raise GraphError for a comparison option, which only applies without calibration."""
    given = {
        "--data": comparison.data is not None,
        "--shape": bool(comparison.shapes),
        "--input-range": comparison.input_range != COMPARISON.input_range,
    }
    for option, is_given in given.items():
        if is_given:
            raise GraphError("only-for", option=option, what="quantizing without --calibration")
