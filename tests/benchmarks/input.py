"""The articles' experiments: one model fed by feed_dict, by queues and by tf.data, side by side.

Each style has a process of its own, and they have their turns. What computes is the model itself,
or a wait of 20 ms: an accelerator that takes no CPU. What it prints also goes into INPUT.md.
"""

import contextlib
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from deploykit.files import load_graph
from deploykit.input.data import Data, open_data
from deploykit.input.pipeline import Pipeline
from deploykit.input.preprocessing import Preprocessing, load_preprocessing, steps_for
from deploykit.input.runner import InputJob, started
from deploykit.input.service import service
from tests.benchmarks.figures import RESULTS, Figure
from tests.benchmarks.measuring import deploykit, run
from tests.benchmarks.nets import frozen_keras_net, made_by
from transforms.core.child import call

ROUNDS = 5
WAIT_MS = 20.0
THREADS = 2
EVER = 600.0  # seconds
AHEAD = 20  # steps that what lies ready may flatter

FASTER = {"queue": 0.50, "tfdata": 0.30}  # time, as a part of what feeding takes
AT_THE_CEILING = {"queue": 0.93, "tfdata": 0.97}
PARSED = 8.0

# What the articles saw on their GPU.
USED = {"feed": 30, "queue": 43, "tfdata": 61}  # % of the GPU
SAVED = {"queue": "-33 %", "tfdata": "-50 %"}  # of the time of training

PAGE = Path(__file__).with_name("INPUT.md")


@dataclass(frozen=True)
class Turn:
    """One turn of a style: records a second of each phase, and the seconds of all steps."""

    compute: float
    input: float
    both: float
    seconds: float
    steps: int

    @property
    def share(self) -> float:
        """How much of the ceiling is reached: of the slower one of model and input."""
        return self.both / min(self.compute, self.input)

    @property
    def busy(self) -> float:
        """For which part of the time, in percent, the model is busy."""
        return 100 * self.both / self.compute


def in_turn(jobs: Mapping[str, InputJob], steps: int) -> dict[str, list[Turn]]:
    """Run so many steps of each job in every round, A B B A."""
    found: dict[str, list[Turn]] = {name: [] for name in jobs}
    with contextlib.ExitStack() as stack:
        workers = {
            name: stack.enter_context(contextlib.closing(started(job)))
            for name, job in jobs.items()
        }
        for worker in workers.values():
            worker.ask("run", "both", EVER, AHEAD)
        for number in range(ROUNDS):
            for name in list(jobs)[:: -1 if number % 2 else 1]:
                worker = workers[name]
                compute = worker.ask("run", "compute", EVER, steps)
                worker.ask("run", "input", EVER, AHEAD)
                alone = worker.ask("run", "input", EVER, steps)
                both = worker.ask("run", "both", EVER, steps)
                rates = [each.items / each.seconds for each in (compute, alone, both)]
                found[name].append(Turn(*rates, both.seconds, both.steps))
    return found


@dataclass(frozen=True)
class Experiment:
    """A model, what computes, and the data that each column of the table reads."""

    what: str
    jobs: Mapping[str, InputJob]
    steps: int
    asked: bool = True

    def measured(self) -> tuple[list[Figure], list[str]]:
        """Measure with the model itself and with a wait; return figures, and lines of the page."""
        real = in_turn(self.jobs, self.steps)
        waiting = {name: replace(job, wait_ms=WAIT_MS) for name, job in self.jobs.items()}
        waited = in_turn(waiting, self.steps)
        feed = [turn.seconds for turn in real["feed"]]
        figures = []
        for name, turns in real.items():
            style = self.jobs[name].style
            if style == "feed":
                figures.append(Figure(f"{self.what}: {self.steps} steps, {name}", "s", feed))
                continue
            bar = FASTER[style] if self.asked else None
            what = f"{self.what}: {self.steps} steps, {name} (articles: {SAVED[style]})"
            seconds = [turn.seconds for turn in turns]
            figures.append(Figure(what, "s", seconds, feed, at_most_ratio=bar))
        for name, turns in waited.items():
            style = self.jobs[name].style
            bar = AT_THE_CEILING.get(style) if self.asked else None
            shares = [turn.share for turn in turns]
            what = f"{self.what}: {WAIT_MS:g} ms accelerator, {name}, at the ceiling"
            figures.append(Figure(what, "", shares, at_least=bar))
            what = (
                f"{self.what}: {WAIT_MS:g} ms accelerator busy, {name} (articles: {USED[style]} %)"
            )
            figures.append(Figure(what, "%", [turn.busy for turn in turns]))
        return figures, self._section(real, waited)

    def _section(self, real: dict[str, list[Turn]], waited: dict[str, list[Turn]]) -> list[str]:
        lines = [f"## {self.what}", "",
                 f"{self.steps} steps of {next(iter(self.jobs.values())).pipeline.batch}.", "",
                 "| | s | against feed | articles | input alone, items/s | accelerator: s | busy | "
                 "articles |", "|---|---|---|---|---|---|---|---|"]  # fmt: skip
        for name, turns in real.items():
            style = self.jobs[name].style
            pairs = zip(turns, real["feed"], strict=True)
            ratio = statistics.median(a.seconds / b.seconds for a, b in pairs)
            saved = "" if style == "feed" else f"{100 * (ratio - 1):+.0f} %"
            lines.append(
                f"| {name} | {_median(turns, 'seconds'):.2f} | {saved} | {SAVED.get(style, '')} | "
                f"{_median(turns, 'input'):,.0f} | {_median(waited[name], 'seconds'):.2f} | "
                f"{_median(waited[name], 'busy'):.0f} % | {USED[style]} % |"
            )
        return [*lines, ""]


def _median(turns: Sequence[Turn], name: str) -> float:
    return statistics.median(getattr(turn, name) for turn in turns)


def job(
    style: str, data: Data, model: Path, declared: Preprocessing, batch: int,
    fetches: Sequence[str], init: Sequence[str] = (), inputs: Sequence[str] = (),
) -> InputJob:  # fmt: skip
    """Return a job that goes through the data again and again."""
    graph = load_graph(model, inputs, fetches)
    pipeline = Pipeline(
        data, steps_for(data, graph, declared), batch, whole=True, epochs=None, threads=THREADS
    )
    return InputJob(style, pipeline, str(model), tuple(fetches), tuple(init))


def sum_sign() -> list[Experiment]:
    """Return 100 training steps and 100 inference batches on lines of 1025 numbers."""
    built = made_by("sum_sign/build.py")
    table = open_data(str(built / "csv"))
    records = as_records(built / "csv", "sum_sign")
    columns = {
        "feed, CSV": ("feed", table),
        "queue, CSV": ("queue", table),
        "tf.data, CSV": ("tfdata", table),
        "tf.data, TFRecord": ("tfdata", records),
    }
    found = []
    for what, arguments in (
        ("training", (built / "train.pb", Preprocessing(), 32, ["train"], ["init"])),
        ("inference", (built / "frozen.pb", Preprocessing(), 32, ["out"])),
    ):
        model, declared, batch, fetches, *init = arguments
        jobs = {
            name: job(style, data, model, declared, batch, fetches, *init)
            for name, (style, data) in columns.items()
        }
        found.append(Experiment(f"sum_sign, {what}", jobs, 100))
    return found


def text_rating() -> list[Experiment]:
    """Return 100 training steps on records of two texts: split, cut, padded, shuffled."""
    built = made_by("text_rating/build.py")
    data, declared = (
        open_data(str(built / "records")),
        load_preprocessing(built / "preprocess.json"),
    )
    jobs = {}
    for name, style in (("feed", "feed"), ("queue", "queue"), ("tf.data", "tfdata")):
        made = job(style, data, built / "train.pb", declared, 32, ["train"], ["init"])
        jobs[f"{name}, TFRecord"] = replace(made, pipeline=replace(made.pipeline, shuffle=1))
    return [Experiment("text_rating, training", jobs, 100, asked=False)]


def images() -> list[Experiment]:
    """Return 10 batches of photos through MobileNet, decoded from files or from records."""
    folder = photos()
    files, records = open_data(str(folder)), as_records(folder, "photos")
    model = frozen_keras_net("MobileNet")
    columns = {
        "feed, JPEG": ("feed", files),
        "queue, JPEG": ("queue", files),
        "tf.data, JPEG": ("tfdata", files),
        "tf.data, TFRecord": ("tfdata", records),
    }
    outputs = load_graph(model).outputs
    jobs = {
        name: job(style, data, model, Preprocessing(), 8, outputs)
        for name, (style, data) in columns.items()
    }
    return [Experiment("MobileNet, inference", jobs, 10, asked=False)]


def photos() -> Path:
    """Return a folder of 160 JPEG files of 500x375, made up by seed in the size of photos."""
    folder = RESULTS / "data" / "photos"
    if not folder.exists():
        call("tests.benchmarks.input:write_photos", str(folder))
    return folder


def write_photos(folder: str) -> None:
    """Write the photos: soft shapes with some grain; this is done in a child process."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    partial = Path(f"{folder}.partial")
    for number in range(160):
        place = partial / ("odd" if number % 2 else "even")
        place.mkdir(parents=True, exist_ok=True)
        shapes = tf.image.resize(random.uniform(0, 255, (12, 16, 3)), (375, 500), "bicubic").numpy()
        pixels = np.clip(shapes + random.normal(0, 9, shapes.shape), 0, 255).astype(np.uint8)
        (place / f"{number:03}.jpg").write_bytes(tf.io.encode_jpeg(pixels, quality=90).numpy())
    partial.rename(folder)


def parsing() -> list[Figure]:
    """Compare batches of parse_example with batches of decode_csv, on the lines of sum_sign."""
    built = made_by("sum_sign/build.py")
    folders = {"records": as_records(built / "csv", "sum_sign").path, "csv": str(built / "csv")}
    found: dict[str, list[float]] = {kind: [] for kind in folders}
    for _ in range(ROUNDS):
        for kind, folder in folders.items():
            found[kind].append(call("tests.benchmarks.input:lines_per_second", folder))
    ratios = [a / b for a, b in zip(found["records"], found["csv"], strict=True)]
    return [
        Figure("input alone: parse_example, peer decode_csv", "lines/s", *found.values()),
        Figure(
            "input alone: parse_example is faster than decode_csv", "x", ratios, at_least=PARSED
        ),
    ]


def lines_per_second(folder: str) -> float:
    """Return how fast batches of 32 are read and parsed; this is done in a child process."""
    import tensorflow as tf

    from deploykit.input.parsing import decoded_lines, example_spec

    data = open_data(folder)
    files = tf.data.Dataset.from_tensor_slices(list(data.files)).repeat()
    if data.kind == "csv":
        batches = files.interleave(tf.data.TextLineDataset).batch(32)
        parsed = batches.map(lambda lines: decoded_lines(data, data.features, lines), THREADS)
    else:
        batches = files.interleave(tf.data.TFRecordDataset).batch(32)
        spec = example_spec(data.features)
        parsed = batches.map(lambda each: tf.io.parse_example(each, spec), THREADS)
    steps = iter(parsed.prefetch(2))
    for _ in range(AHEAD):
        next(steps)
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < 2:
        next(steps)
        count += 32
    return count / (time.perf_counter() - start)


def epoch() -> list[Figure]:
    """Count the records of an epoch that two workers of tf.data service share, by their ids."""
    table = open_data(str(made_by("sum_sign/build.py") / "csv"))
    records = open_data(str(made_by("text_rating/build.py") / "records"))
    lines = sum(len(Path(file).read_text().splitlines()) for file in table.files)
    found = []
    with service(2) as address:
        for what, data, count in (("CSV", table, lines), ("TFRecord", records, records.records)):
            seen = call("deploykit.input.service:check_epoch", data, address)
            what = f"tf.data service, 2 workers, {what}: records of an epoch, each once"
            found.append(Figure(what, "", [seen], at_least=count, at_most=count))
    return found


def as_records(source: Path, name: str) -> Data:
    """Return data as TFRecords, converted by `deploykit records` unless that was done before."""
    folder = RESULTS / "data" / f"{name}.records"
    if not folder.exists():
        run(deploykit("records", str(source), "-o", str(folder)))
    return open_data(str(folder))


EXPERIMENTS = (sum_sign, text_rating, images)


def figures() -> list[Figure]:
    """Measure all experiments, and write the page."""
    found, page = [], [_TOP]
    for each in (each for make in EXPERIMENTS for each in make()):
        more, section = each.measured()
        found += more
        page += section
    PAGE.write_text("\n".join(page))
    return [*found, *parsing(), *epoch()]


_TOP = """# Input

Written by `python -m tests.benchmarks input`. Every style had a process of its own and its turn in
every round; figures are medians of 5 rounds. "Accelerator" is a wait of 20 ms in place of the
model, which takes no CPU; "busy" is for which part of the time it is waited for. The articles'
figures are theirs: time of training saved against feed_dict, and use of their GPU.
"""
