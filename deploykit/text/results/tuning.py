"""What tuning recommends: a table, and settings to copy."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from deploykit.benchmarking.comparison.speed_verdict import SpeedVerdict
from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.scaling import thread_lines
from deploykit.benchmarking.settings import Settings
from deploykit.benchmarking.statistics import summary
from deploykit.benchmarking.tuning.recommendation import Recommendation
from deploykit.benchmarking.tuning.searching import GOALS
from deploykit.text.tables import new_table
from deploykit.transforms.core.display.escaped import shell_word

if TYPE_CHECKING:
    from deploykit.text.tables import Table

_WORDS = {
    "onednn": "oneDNN",
    "caller_thread": "the caller's thread",
    "keep_memory": "the C library's memory",
    "threads": "threads",
    "allocator": "the allocator",
}
_TITLES = {
    "default": "default",
    "latency": "lowest latency",
    "throughput": "highest throughput",
}


def lines(found: Recommendation, tuned: str) -> "Iterator[str | Table]":
    """Yield what a person wants to know; `tuned` is the file that holds it."""
    yield _table(found)
    if found.throughput is None:
        lowest = min(summary(each).p99 for each in found.final.measurements)
        yield (
            f"no settings keep p99 within {found.latency_limit:g} ms; the lowest here is "
            f"{lowest:.3g} ms"
        )
    for goal in GOALS:
        chosen = getattr(found, goal)
        if chosen is not None and chosen is not found.default:
            yield f"{_TITLES[goal]}: {chosen.settings}"
            yield from to_copy(found.model.source, chosen.settings)
    if found.latency is found.throughput is found.default:
        yield "no difference: nothing that was tried is faster than the defaults for sure"
    if found.undecided:
        way = "more minutes (--budget) or a quieter machine would decide it"
        yield f"undecided: {'; '.join(found.undecided)}: {way}"
    if found.final.conditions is not None and found.final.conditions.busy:
        yield f"{found.final.conditions.busy}; an idle one would tell more"
    yield from thread_lines(found.final)
    if found.impossible:
        yield f"unstable: {found.impossible}"
    yield f"{tuned} recommends: {found.settings}"
    for name, held in found.kept.items():
        yield f"not searched: {_WORDS[name]} ({', '.join(held)} is set)"
    for name, why in found.lacking.items():
        yield f"not searched: {name}: {why}"
    failed = [each for each in found.trials if each.failure]
    for each in failed:
        yield f"failed: {each.settings}: {each.failure}"
    if not found.complete:
        yield (
            f"the search ended with its time, after {len(found.trials)} trials; --budget gives "
            "it more"
        )


def to_copy(model: str, settings: Settings) -> Iterator[str]:
    """Yield settings as variables, session options, and options of commands."""
    if environment := settings.environment:
        yield f"  environment  {_assignments(environment)}"
    if settings.engine is not None:
        yield f"  served       deploykit serve {_served(settings)}"
    elif settings.threads is not None:
        intra, inter = settings.threads
        yield f"  ConfigProto  intra_op_parallelism_threads={intra}"
        yield f"               inter_op_parallelism_threads={inter}"
    yield f"  or           deploykit benchmark {shell_word(model)} {options(settings)}"


def _table(found: Recommendation) -> "Table":
    table = new_table("tune", "p50 ms", "p99 ms", "CPU ms", "items/s", "against the defaults")
    loaded = found.final.conditions is not None and found.final.conditions.busy
    mark = ", loaded machine" if loaded else ""
    for goal in ("default", *GOALS):
        chosen: Measurement | None = getattr(found, goal)
        if chosen is None:
            continue
        figures, gain = summary(chosen), ""
        if goal != "default" and chosen is found.default:
            gain = "nothing is better"
        elif goal == "latency":
            gain = f"{_shown(found.faster(chosen))} as fast{mark}"
        elif goal == "throughput":
            gain = f"{_shown(found.more(chosen))} the items{mark}"
        cells = (figures.p50, figures.p99, figures.cpu_ms, figures.items_per_second)
        shown = ["?" if each is None else f"{each:.4g}" for each in cells]
        table.add_row(_TITLES[goal], *shown, gain)
    return table


def options(settings: Settings) -> str:
    """Return settings as options of `deploykit benchmark`."""
    words = [] if settings.engine is None else [f"--engine {settings.engine}"]
    if settings.batch is not None:
        words.append(f"--batch {settings.batch}")
    if settings.threads is not None:
        words.append("--threads {}x{}".format(*settings.threads))
    for name in ("onednn", "caller_thread", "keep_memory"):
        if (value := getattr(settings, name)) is not None:
            words.append(f"--{name.replace('_', '-')} {'on' if value else 'off'}")
    if settings.concurrency > 1:
        words.append(f"--concurrency {settings.concurrency}")
    if settings.executor is not None:
        words.append(f"--executor {settings.executor}")
    if settings.allocator is not None:
        words.append(f"--allocator {settings.allocator}")
    return " ".join(words)


def _served(settings: Settings) -> str:
    """Return the options of a server in another engine: a slot is a stream."""
    words = [f"--engine {settings.engine} --slots {settings.concurrency}"]
    if settings.threads is not None:
        words.append(f"--tensorflow_intra_op_parallelism={settings.threads[0]}")
    return " ".join(words)


def _assignments(environment: Mapping[str, str | None]) -> str:
    return " ".join(f"{name}={value}" for name, value in environment.items() if value is not None)


def _shown(found: SpeedVerdict) -> str:
    ratio = found.wall
    text = f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] x"
    return text if found.significant else f"{text} ({found.kind})"
