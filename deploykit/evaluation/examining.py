"""Runs models on the same samples, one after the other, and summarizes their outputs."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from deploykit.benchmarking.engines.engine_choice import warn_emulated
from deploykit.evaluation.examiner import Findings
from deploykit.evaluation.pictures import photo_like, samples_as_photos, span_of
from deploykit.evaluation.result import Accuracy, Disagreement, ModelAccuracy
from deploykit.importers.open_model import OpenedModel
from deploykit.quantization.metrics import METRICS
from deploykit.rendering.progress import Work
from deploykit.storage.files import read_bytes
from deploykit.transforms.common.errors import Error, GraphError, naming
from deploykit.transforms.engines.engines import TENSORFLOW, EngineUse, lacking
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.child_process import Worker
from deploykit.verification.class_order import CLASS_METRICS, refuse_other_order
from deploykit.verification.confidence import NORMAL_95
from deploykit.verification.coverage import class_name, class_numbers, doubt
from deploykit.verification.feeds import Feed, samples_in
from deploykit.verification.samples import Dataset
from deploykit.verification.tolerance import before_softmax, maker

logger = logging.getLogger("deploykit")

STEPS = ("read", "run", "compare")
EXAMINER = "deploykit.evaluation.examiner:Examiner"
MAX_PICTURES = 12
_PARTS = 50  # progress updates per model


def examine(
    models: Mapping[str, OpenedModel],
    samples: Dataset,
    alike: Callable[[OpenedModel], Dataset],
    metric: str,
    worst: int,
    work: Work,
    z: float = NORMAL_95,
) -> Accuracy:
    """Measure the accuracy of models on the same samples, each in the engine it was written for.

    Args:
        models: models by display name; the last is compared with the first.
        samples: samples of the first model.
        alike: returns the same samples in the form that another model takes.
        metric: top1, top5, mae, or the user's `module:function`.
        worst: maximum number of disagreements in the result.
        work: progress with the steps `STEPS`.
        z: normal quantile for the intervals of the change and the agreement [default: 95 %
            confidence].

    GraphError: an engine refuses a model or the samples, labels do not fit, the metric fails, or
    there is nothing to compare. CrashError: an engine died. LimitError: it took too much time or
    memory.
    """
    first = next(iter(models.values()))
    metric = _metric(metric, samples, len(models))
    whole = metric not in ("", *METRICS)
    outputs = list(first.frozen.outputs)
    with contextlib.closing(Worker(EXAMINER, metric, outputs, whole)) as worker:
        work.begin("run")
        is_classified = samples.has_class_names and metric in CLASS_METRICS
        count, engines = _run_all(worker, models, samples, alike, whole, is_classified, work)
        work.begin("compare")
        labels, made_by = _labels(samples, count), maker(first.frozen, outputs[0]).op
        groups = None if samples.groups is None else samples.groups[:count]
        with samples.named():
            findings: Findings = worker.ask(
                "findings", labels, count, samples.class_names, worst, made_by, groups, z
            )
        _require_something(findings, first)
        pictures = _pictures(worker, samples, findings.apart.samples)
    return Accuracy(
        metric or None,
        count,
        samples.source or "arrays",
        tuple(map(ModelAccuracy, models, findings.scores, engines, models.values())),
        findings.change,
        findings.agreement,
        findings.noise,
        findings.groups,
        findings.by_class,
        _worst(findings, samples, labels, pictures),
        samples.class_order,
        _doubts(findings, labels, samples, count),
        samples.fed,
        findings.weak_classes,
    )


def _run_all(
    worker: Worker,
    models: Mapping[str, OpenedModel],
    samples: Dataset,
    alike: Callable[[OpenedModel], Dataset],
    whole: bool,
    is_classified: bool,
    work: Work,
) -> tuple[int, list[str]]:
    """Run each model in the child; return the number of samples that all took, and the engines."""
    first, counts, engines = next(iter(models.values())), list[int](), list[str]()
    made_by = maker(first.frozen, first.frozen.outputs[0]).op
    compared = _compared(models, whole)
    for name, model in models.items():
        own = samples if model is first else alike(model)
        with naming(model.source):
            use = _engine(model)
            outputs = _outputs(first, model, whole)
            tensors = outputs, compared.get(name, ())
            for done, count, steps in _run(worker, model, use, tensors, own):
                work(f"{name}: {done} of {count} samples", steps * len(models))
            counts.append(count)
        if not engines and is_classified:  # before the others run
            refuse_other_order(worker.ask("answers", made_by), samples)
        engines.append(TENSORFLOW if use is None else use.engine)
    return min(counts), engines


def _metric(metric: str, samples: Dataset, models: int) -> str:
    """Return the metric to use; empty: the models can only be compared with each other.

    GraphError: the metric needs labels, but the samples have none.
    """
    if samples.labels is not None or ":" in metric:
        return metric
    if models == 1 or metric != "top1":  # top1 is the default
        with samples.named():
            samples.refuse_unlabelled(metric)
    logger.warning("there are no labels, so the models are only compared with each other")
    return ""


def _engine(model: OpenedModel) -> EngineUse | None:
    """Return the engine that a model was written for, if available here; None: TensorFlow."""
    use = model.about.engine
    if use is None or use.engine == TENSORFLOW:
        return None
    if why := lacking(use.engine):
        warn_emulated(model, why)
        return None
    return use


def _outputs(first: OpenedModel, model: OpenedModel, whole: bool) -> Sequence[str]:
    """Return the outputs of a model in the order of the first model's: by name, or by index.

    GraphError: the number of outputs differs and the metric uses all of them.
    """
    names, others = first.frozen.outputs, model.frozen.outputs
    if whole and len(names) != len(others):
        raise GraphError(
            "outputs-count-differs", count=len(others), other=first.source, other_count=len(names)
        )
    return names if set(names[: None if whole else 1]) <= set(others) else others


def _compared(models: Mapping[str, OpenedModel], whole: bool) -> dict[str, list[str]]:
    """Return the tensors to compare of the first and the last model, by model name.

    They are the outputs, or the input of a final Softmax if both models have one. If only one has
    a Softmax, the outputs are not compared: one has probabilities, the other logits.
    """
    first_name, *_, last_name = [*models] * 2
    first, last = models[first_name], models[last_name]
    result: dict[str, list[str]] = {first_name: [], last_name: []}
    if first is last:
        return result
    names, others = first.frozen.outputs, _outputs(first, last, whole)
    for own, other in zip(names[: None if whole else 1], others, strict=False):
        before = before_softmax(first.frozen, own), before_softmax(last.frozen, other)
        if (before[0] is None) == (before[1] is None):
            result[first_name].append(before[0] or own)
            result[last_name].append(before[1] or other)
    return result


def _run(
    worker: Worker,
    model: OpenedModel,
    use: EngineUse | None,
    tensors: tuple[Sequence[str], Sequence[str]],
    samples: Dataset,
) -> Iterator[tuple[int, int, int]]:
    """Run a model on its samples in the child, which stores the outputs.

    `tensors` are the outputs and the tensors for the SQNR. Before each step, yield the number of
    samples done, of all samples and of all steps.
    """
    graph = model.frozen
    engine, precision = (TENSORFLOW, "f32") if use is None else (use.engine, use.precision)
    outputs, compared = map(list, tensors)
    worker.ask("load", b"".join(graph.serialized()), outputs, compared, engine, precision)
    feeds: list[Feed] = samples.feeds()
    count, done = samples_in(feeds), 0
    size = -(-len(feeds) // _PARTS)
    for start in range(0, len(feeds), size):
        part = feeds[start : start + size]
        yield done, count, -(-len(feeds) // size)
        worker.ask("run", part)
        done += samples_in(part)
    worker.ask("keep", count)


def _labels(samples: Dataset, count: int) -> Array | None:
    labels = samples.labels
    return labels if labels is None or not labels.ndim else labels[:count]


def _require_something(findings: Findings, first: OpenedModel) -> None:
    """Raise GraphError if nothing was compared."""
    if all(score is None for score in findings.scores) and findings.agreement is None:
        raise GraphError("models-not-comparable", source=first.source)


def _doubts(
    findings: Findings, labels: Array | None, samples: Dataset, count: int
) -> tuple[str, ...]:
    """Return why the first model's predictions are doubtful, and log it as a warning."""
    answers = findings.answers
    if answers is None or len(answers.numbers) != count:
        return ()
    text = doubt(
        answers.numbers,
        answers.classes,
        labels,
        source=samples.source,
        is_named=samples.has_class_names,
    )
    if text:
        logger.warning("%s", text)
    return (text,) if text else ()


def _worst(
    findings: Findings, samples: Dataset, labels: Array | None, pictures: Sequence[str | None]
) -> tuple[Disagreement, ...]:
    """Return the disagreements with file, label and thumbnail of each sample."""
    apart = findings.apart
    truth = None
    if labels is not None and findings.answers is not None:
        truth = class_numbers(labels, samples.count, findings.answers.classes)
    entries = []
    for place, number in enumerate(apart.samples):
        entries.append(
            Disagreement(
                number,
                samples.files[number] if samples.files else None,
                _label(number, truth, labels, samples),
                apart.first[place],
                apart.last[place],
                apart.sizes[place],
                pictures[place] if place < len(pictures) else None,
            )
        )
    return tuple(entries)


def _label(number: int, truth: Array | None, labels: Array | None, samples: Dataset) -> str | None:
    """Return the label of a sample as readable text."""
    if truth is not None:
        return class_name(int(truth[number]), samples.class_names)
    if labels is None or not labels.ndim or np.size(labels[number]) != 1:
        return None
    return f"{np.reshape(labels[number], -1)[0]:.6g}"


def _pictures(worker: Worker, samples: Dataset, places: Sequence[int]) -> list[str | None]:
    """Return thumbnails of samples that are images; None where a sample cannot be shown."""
    places = places[:MAX_PICTURES]
    if not places:
        return []
    try:
        if samples.files:
            photos: list[bytes | Array] = [read_bytes(samples.files[n]) for n in places]
            return list(worker.ask("pictures", photos, None))
        for array in samples.arrays.values():
            if photo_like(array):
                shown = samples_as_photos(array, places)
                return list(worker.ask("pictures", shown, span_of(array)))
    except Error as error:
        logger.warning("images are not shown: %s", error)
    return []
