"""Speed: two benchmarks side by side, and the settings that tuning recommends."""

from collections.abc import Iterator
from math import isfinite
from typing import Any

from deploykit.benchmarking import process_variables
from deploykit.benchmarking.comparing import Speedups
from deploykit.benchmarking.results import thread_lines
from deploykit.benchmarking.run_config import CONFIDENCE, RunConfig
from deploykit.benchmarking.statistics import summary
from deploykit.benchmarking.tuning.recommendation import Recommendation
from deploykit.benchmarking.tuning.search import GOALS
from deploykit.rendering.tables import Table, facts, table
from deploykit.rendering.templates import filled, filled_lines, rendered_rows
from deploykit.transforms.common.messages import shell_word

_SEARCHED = {
    "onednn": "oneDNN",
    "caller_thread": "the caller's thread",
    "keep_memory": "the memory of the C library",
    "threads": "threads",
}
_TITLES = {"default": "default", "latency": "lowest latency", "throughput": "highest throughput"}


def lines(recommendation: Recommendation) -> Iterator[str | Table]:
    """Yield the recommended settings, and what limits the search."""
    yield _table(recommendation)
    if recommendation.throughput is None:
        lowest = min(summary(item).p99 for item in recommendation.final.measurements)
        yield (
            f"no settings keep p99 within {recommendation.latency_limit:g} ms; the lowest p99 here "
            f"is {lowest:.3g} ms"
        )
    for goal in GOALS:
        chosen = getattr(recommendation, goal)
        if chosen is not None and chosen is not recommendation.default:
            yield f"{_TITLES[goal]}: {chosen.settings}"
            yield usage(recommendation.model.source, chosen.settings)
    if recommendation.latency is recommendation.throughput is recommendation.default:
        yield "no difference: no settings are significantly faster than the defaults"
    if recommendation.undecided:
        yield (
            f"inconclusive: {'; '.join(recommendation.undecided)}: allow more minutes (--budget) "
            "or use an idle machine"
        )
    yield from filled_lines(
        recommendation, "{final.conditions.busy}; results on an idle machine are more precise"
    )
    yield from thread_lines(recommendation.final)
    yield from filled_lines(recommendation, "unstable: {impossible}", "recommended: {settings}")
    if recommendation.not_stored:
        words = ", ".join(process_variables.in_words(recommendation.not_stored))
        yield f"not in the settings of a file, which set no such variable: {words}; set it yourself"
    for name, given in recommendation.kept.items():
        yield f"not searched: {_SEARCHED[name]} ({', '.join(given)} is set)"
    yield from rendered_rows(recommendation.lacking.items(), "not searched: {0}: {1}")
    yield from rendered_rows(recommendation.trials, "failed: {settings}: {failure}")
    if not recommendation.complete:
        yield f"the search used up its time after {len(recommendation.trials)} trials (--budget)"


def settings_lines(settings: RunConfig) -> list[str | Table]:
    """Return settings, and the commands and variables that apply them."""
    return [str(settings), usage("MODEL", settings)]


def usage(model: str, settings: RunConfig) -> Table:
    """Return settings as variables, session options, and options of commands."""
    session = "intra_op_parallelism_threads={threads.0}\ninter_op_parallelism_threads={threads.1}"
    serve = (
        "deploykit serve --engine {engine} --slots {concurrency}"
        "[[ --tensorflow_intra_op_parallelism={threads.0}]]"
    )
    return facts(
        settings,
        {
            "environment": lambda _: " ".join(
                f"{name} unset" if value is None else f"{name}={shell_word(value)}"
                for name, value in settings.environment.items()
            ),
            "server": serve,
            "ConfigProto": session if settings.engine is None else lambda _: None,
            "benchmark": lambda _: f"deploykit benchmark {shell_word(model)} {options(settings)}",
        },
    )


def options(settings: RunConfig) -> str:
    """Return settings as options of `deploykit benchmark`."""
    template = (
        "[[ --engine {engine}]][[ --batch {batch}]][[ --threads {threads.0}x{threads.1}]]"
        "[[ --onednn {onednn:on}]][[ --keep-memory {keep_memory:on}]]"
        + " --concurrency {concurrency}" * (settings.concurrency > 1)
        + "[[ --executor {executor}]]"
    )
    words = [line.strip() for line in filled_lines(settings, template)]
    pairs = (f"{name}={value or ''}" for name, value in dict(settings.env).items())
    words += (f"--env {shell_word(pair)}" for pair in pairs)
    return " ".join(words)


def _table(recommendation: Recommendation) -> Table:
    rows = {goal: getattr(recommendation, goal) for goal in ("default", *GOALS)}
    loaded = ", loaded machine" if recommendation.final.busy else ""

    def gain(row: Any) -> str | None:
        goal, _, chosen = row
        if goal == "default":
            return None
        if chosen is recommendation.default:
            return "no improvement"
        verdict = (
            recommendation.faster(chosen) if goal == "latency" else recommendation.more(chosen)
        )
        kind = "" if verdict.significant else f", {verdict.kind}"
        low, high = (f"{end:.2f}" for end in (verdict.wall.low, verdict.wall.high))
        interval = f"{100 * CONFIDENCE:g} % CI {low}-{high}"
        return f"{verdict.wall.value:.2f}x ({interval}){kind}{loaded}"

    return table(
        [(goal, summary(chosen), chosen) for goal, chosen in rows.items() if chosen is not None],
        {
            "tune": lambda row: _TITLES[row[0]],
            "p50 ms": "{1.p50:.4g}",
            "p99 ms": "{1.p99:.4g}",
            "CPU ms": "{1.cpu_ms:.4g}",
            "items/s": "{1.items_per_second:.4g}",
            "vs the defaults": gain,
        },
        "vs the defaults: speed for the lowest latency, items/s for the highest throughput",
    )


def speedup_lines(speedups: Speedups) -> Iterator[str | Table]:
    """Yield a comparison as lines and tables."""
    if speedups.is_first:
        yield f"{speedups.a}: baseline written, nothing compared"
        return
    yield table(
        speedups.pairs,
        {
            "measurement": "{name}",
            "p50 a": lambda pair: f"{summary(pair.a).p50:.4g} ms",
            "p50 b": lambda pair: f"{summary(pair.b).p50:.4g} ms",
            "CPU a": "{a.cpu_ms:.4g} ms",
            "CPU b": "{b.cpu_ms:.4g} ms",
            "speed": "{ratio.value:.3f}x",
            f"{100 * speedups.confidence:g} % CI": lambda pair: (
                filled("{ratio.low:.3f}-{ratio.high:.3f}", pair)
                if isfinite(pair.ratio.high)
                else None
            ),
        },
    )
    yield from rendered_rows(speedups.pairs, "{name}: {judgement.verdict}")
    yield from rendered_rows(speedups.only_a, "only in a: {}")
    yield from rendered_rows(speedups.only_b, "only in b: {}")
    yield from rendered_rows(speedups.warnings, "warning: {}")
