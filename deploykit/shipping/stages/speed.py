"""The stages `placement`, `tune` and `benchmark` of the shipped model."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from deploykit.api import benchmarking, tuning
from deploykit.api import placement as placing
from deploykit.api.comparison import READ_BY, reading_options
from deploykit.benchmarking.results import BenchmarkResult, load_tuned
from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.tuning.recommendation import check_served
from deploykit.data.input_speed.input_result import InputResult
from deploykit.shipping import figures
from deploykit.shipping.shipment import (
    AS_IT_CAME,
    EIGHT_BITS,
    EIGHT_BITS_FILE,
    FROZEN,
    OPTIMIZED,
    OPTIMIZED_FILE,
    Shipment,
    cached,
    is_folder,
)
from deploykit.shipping.shipped import DONE, UNDECIDED, Outcome
from deploykit.storage.files import write
from deploykit.storage.ship_report import MODEL, TUNED
from deploykit.transforms.common.errors import Error, GraphError
from deploykit.transforms.engines.engines import ENGINES, TENSORFLOW

LONGEST = 4.5  # seconds per model and settings; below 5, half as many processes start
STARTING = 4.0  # of these seconds: loading and warm-up of a session
AFTER_MINUTES = 0.7  # reserved for later stages before the benchmark is repeated
INPUT_SECONDS = 3.0
_FED = ("calibration", "evaluation_form", *READ_BY, "device", "allow_ops")


@cached(*_FED, measures=True, seconds=2)
def placement(shipment: Shipment) -> Outcome:
    """Find the device of each op."""
    how, model, data = shipment.how, shipment.opened(MODEL), shipment.arrays()
    result = placing.placement(model, data=data, device=how.device, allow_ops=how.allow_ops)
    return Outcome(result.document())


@cached(*_FED, "goal", measures=True, seconds=35, seconds_a_ms=5, share=0.5)
def tune(shipment: Shipment) -> Outcome:
    """Find the fastest settings, and write them for servers."""
    how = shipment.how
    goal = "throughput" if how.goal == "throughput" else "latency"
    path, tuned = shipment.path(f"{TUNED}.part"), shipment.path(TUNED)
    result = tuning.tune(
        shipment.opened(MODEL),
        goal=goal,
        budget=max(shipment.share, 0.3),
        output=path,
        force=True,
        data=shipment.arrays(),
        allow_ops=how.allow_ops,
    )
    path.unlink()
    document, settings = shipment.in_output(result.document()), result.settings
    tuned.unlink(missing_ok=True)
    if settings == RunConfig(batch=settings.batch if settings.batch == 1 else None):
        why = "no settings are significantly faster than the defaults"
        if result.undecided:
            why += f"; {len(result.undecided)} of them are inconclusive: high variance"
        return Outcome(document, (), UNDECIDED if result.undecided else DONE, why)
    try:
        check_served(settings, TUNED, engines=ENGINES)
    except GraphError as error:
        return Outcome(document, why=f"not written for servers: {error}")
    write(tuned, [f"{json.dumps(document, indent=2, allow_nan=False)}\n".encode()], force=True)
    return Outcome(document, (TUNED,))


@cached(*_FED, measures=True, seconds=45, seconds_a_ms=6, share=0.6)
def benchmark(shipment: Shipment) -> Outcome:
    """Measure the graphs of each step, and the shipped one with the tuned settings."""
    how = shipment.how
    files = {AS_IT_CAME: FROZEN, OPTIMIZED: OPTIMIZED_FILE}
    if shipment.in_8_bits:
        files[EIGHT_BITS] = EIGHT_BITS_FILE
    models = {name: shipment.opened(path) for name, path in files.items()}
    models[shipment.shipped_as] = shipment.opened(MODEL)
    plain = RunConfig(device=how.device)
    settings = {name: [plain] for name in models}
    if shipment.in_8_bits or _in_tensorflow(shipment):
        settings[shipment.shipped_as] = []  # TensorFlow would only emulate another engine's int8
    settings[shipment.shipped_as] += _shipped_settings(shipment)
    count = sum(map(len, settings.values()))
    seconds = max(1.0, min(LONGEST, 60 * shipment.share / count - STARTING))

    def measured() -> BenchmarkResult:
        value = benchmarking.benchmark(
            models,
            settings,
            data=shipment.arrays(),
            seconds=seconds,
            profile=True,
            allow_ops=how.allow_ops,
        )
        assert isinstance(value, BenchmarkResult)
        return value

    minutes = (seconds + STARTING) * count / 60 + AFTER_MINUTES
    result = less_loaded(measured, lambda: shipment.left > minutes)
    document: dict[str, Any] = {"models": result.document(), "input": None}
    why = _input(shipment, document)
    return Outcome(document, why=why, facts=figures.of_speed(result, shipment.shipped_as))


def less_loaded(
    measured: Callable[[], BenchmarkResult], has_time: Callable[[], bool]
) -> BenchmarkResult:
    """Measure once, or twice on a loaded machine if time allows, and return the less loaded run."""
    result = measured()
    if result.conditions is None or not result.conditions.busy or not has_time():
        return result
    again = measured()
    if again.conditions is None or again.conditions.foreign_cores > result.conditions.foreign_cores:
        return result
    return again


def _shipped_settings(shipment: Shipment) -> list[RunConfig]:
    """Return the settings to measure for the shipped model: its engine's defaults and the tuned."""
    engine = None if _in_tensorflow(shipment) else shipment.document("quantize")["engine"]
    plain, path = RunConfig(device=shipment.how.device, engine=engine), shipment.path(TUNED)
    if not path.exists():
        return [plain]
    tuned = load_tuned(path)
    is_plain = replace(tuned, batch=None if tuned.batch == 1 else tuned.batch) == plain
    return [plain] if is_plain else [plain, tuned]


def _in_tensorflow(shipment: Shipment) -> bool:
    """Return whether TensorFlow runs the shipped model."""
    return shipment.document("quantize").get("engine") in (None, TENSORFLOW)


def _input(shipment: Shipment, document: dict[str, Any]) -> str:
    """Measure the model on files, fed and through tf.data; return why not, or an empty string."""
    how = shipment.how
    data = next((item for item in (how.evaluation, how.calibration) if is_folder(item)), None)
    if data is None:
        return "tf.data is not measured: the samples are arrays, not files"
    is_ours = _in_tensorflow(shipment)
    try:
        result = benchmarking.benchmark(
            shipment.opened(MODEL if is_ours else OPTIMIZED_FILE),
            data=data,
            **reading_options(how),
            seconds=INPUT_SECONDS,
            allow_ops=how.allow_ops,
        )
    except Error as error:
        return f"tf.data is not measured: {error}"
    assert isinstance(result, InputResult)
    document["input"] = result.document()
    return "" if is_ours else "fed and through tf.data, TensorFlow runs the optimized graph"
