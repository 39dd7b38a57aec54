"""gate: pass or fail a candidate model against its baseline."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from deploykit.api.public import Command, public
from deploykit.data.preprocessing import with_header
from deploykit.data.samples import open_alike, open_samples, preprocessing_for, with_axes
from deploykit.gating.limits import GateLimits
from deploykit.gating.measuring import BASELINE, CANDIDATE, STEPS, GateRun
from deploykit.gating.result import GateResult
from deploykit.importers.open_model import ModelLike, OpenedModel, open_model
from deploykit.rendering.progress import working
from deploykit.storage.csv_files import HeaderRule
from deploykit.transforms.common.flag import ALLOW_OP, COLUMNS, HEADER, LABELS, PREPROCESS, Flag
from deploykit.transforms.engines.engines import MAX_BATCH
from deploykit.verification.samples import DataLike, Dataset, LabelsLike, PreprocessLike

LIMITS = GateLimits()
BUDGET = 120.0


@public(Command(heading="Measuring", runs_graph=True))
def gate(
    baseline: ModelLike,
    candidate: ModelLike,
    data: Annotated[DataLike, Flag("--data", metavar="DATA", heading="Data")],
    *,
    preprocess: Annotated[PreprocessLike | None, PREPROCESS] = None,
    header: Annotated[HeaderRule, HEADER] = "auto",
    columns: Annotated[Mapping[str, str] | None, COLUMNS] = None,
    labels: Annotated[LabelsLike | None, LABELS] = None,
    metric: Literal["top1", "top5", "mae"] = "top1",
    limits: GateLimits = LIMITS,
    batch: Annotated[int | None, Flag(at_most=MAX_BATCH)] = None,
    budget: Annotated[float, Flag(metavar="SECONDS", above=0)] = BUDGET,
    allow_ops: Annotated[Sequence[str], ALLOW_OP] = (),
) -> GateResult:
    """Pass or fail a candidate model against its baseline, for CI.

    Compares signatures, size, accuracy (without labels: predictions), latency, throughput, memory
    and start-up. Speed and memory are measured in interleaved runs, so that other load on the
    machine affects both models equally. A check passes if its whole confidence interval is within
    its limit, and fails if the whole interval is beyond. Otherwise the gate keeps measuring for
    up to `budget` seconds.

    Exits with 0 if every check passes, with 5 if one fails, and with 7 if one is inconclusive.
    Percentages are written as 5% or 0.05. Both models may be folders of `deploykit ship`.

    Args:
        baseline: any model that `open_model` accepts, such as the released one.
        candidate: the model to compare with it.
        data: Samples, with labels for accuracy: a .npz file of arrays by input name and labels, a
            folder of TFRecords or CSV files, a folder of images with one subfolder per class, or
            DIR/NAME if DIR contains records of several names.
        metric: top1, top5, or mae (mean absolute error).
        limits: how much worse the candidate may be.
        batch: Samples per request of the speed measurement [default: the batch that the model
            requires, or 1].
        budget: Longest time in seconds to measure speed, memory and start-up.

    `check()` of the returned value raises VerificationError if a check failed, and
    InconclusiveError if one is inconclusive. FileError, GraphError: a model or the data cannot be
    read or do not match, or every limit is off. RefusedError: an op acts on files or processes.
    LimitError: TensorFlow crashed or hung.

    Commands:
        deploykit gate released.pb candidate.pb --data models/fashion/test_1000.npz
        deploykit gate old.ship new.ship --data test.npz --max-latency-increase 5%

    Example:
        >>> found = deploykit.gate("fashion.pb", "fashion.pb", "test_1000.npz", budget=2)
        >>> found.checks[0].name, found.checks[0].verdict
        ('signatures', 'pass')
    """
    limits.check()
    preprocess = with_header(preprocess, header, columns)
    with working("gate", *STEPS) as work:
        work.begin("read")
        models = {BASELINE: open_model(baseline), CANDIDATE: open_model(candidate)}
        own = {
            name: preprocessing_for(model, models.values(), preprocess)
            for name, model in models.items()
        }
        models = {name: with_axes(model, own[name]) for name, model in models.items()}
        for model in models.values():
            model.refuse_effects(allow_ops)
        first = models[BASELINE].frozen
        samples = open_samples(data, first, own[BASELINE], labels=labels)

        def alike(model: OpenedModel) -> Dataset:
            return open_alike(samples, first, data, model.frozen, own[CANDIDATE])

        return GateRun(models, samples, alike, metric, limits, batch, budget).result(work)
