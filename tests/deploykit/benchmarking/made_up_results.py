"""Results whose figures are known, without a run."""

import dataclasses

import numpy as np

from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.run_config import RunConfig

FACTS = {"tensorflow": "2.21.0", "onednn": True, "openmp": [], "bytes_peak": 512_000_000}


def measurement(name="a.pb", p50=6.0, settings=None, *, seed=0, **more) -> Measurement:
    """Return ten rounds of 41 calls that scatter by 1 % around p50 milliseconds."""
    settings = settings or RunConfig()
    scatter = np.exp(0.01 * np.random.default_rng(seed).standard_normal((10, 41)))
    scatter /= np.median(scatter)
    rounds = tuple(tuple(float(call) for call in each) for each in p50 * scatter)
    found = Measurement(
        name=name,
        model=name,
        sha256="ab" * 32,
        settings=settings,
        samples=settings.batch or 1,
        load_ms=98.2,
        first_run_ms=444.0,
        warm_up_ms=(3 * p50, 2 * p50, 1.5 * p50),
        settled=True,
        rounds_ms=rounds,
        rounds_seconds=tuple(sum(each) / 1e3 / settings.concurrency for each in rounds),
        facts=FACTS,
    )
    return dataclasses.replace(found, **more)


def result(*measurements: Measurement, **more) -> BenchmarkResult:
    """Return a result of measurements on a machine with two cores."""
    machine = {"cpu": "AMD EPYC 7R13 Processor", "cores": 2}
    return BenchmarkResult(measurements, machine, "2026-11-21T10:08:24+00:00", **more)
