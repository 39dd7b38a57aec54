"""The articles' experiments: one model fed by feed_dict, by queues and by tf.data, side by side.

What it prints also goes into docs/benchmarks/input.md, beside the articles' own figures.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from deploykit.data.data import Data, open_data
from deploykit.data.input_speed.input_runner import InputJob
from deploykit.data.pipeline import InputPipelineOptions, Pipeline
from deploykit.data.preprocessing import Preprocessing, load_preprocessing, preprocessing_of
from deploykit.data.samples import open_runnable
from deploykit.importers.graph_files import load_graph
from deploykit.transforms.runtime.child_process import call
from tests.benchmarks.feeding import AHEAD, ROUNDS, Experiment
from tests.benchmarks.figures import RESULTS, Figure, measured_on
from tests.benchmarks.measuring import deploykit, run
from tests.benchmarks.nets import frozen_keras_net, made_by
from tests.deploykit.data.made_up import steps_for
from tests.deploykit.data.tfdata_servers import serving

THREADS = 2
PARSED = 8.0  # times as fast as decode_csv

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks" / "input.md"


def job(
    style: str, data: Data, model: Path, declared: Preprocessing, batch: int,
    fetches: Sequence[str], init: Sequence[str] = (), inputs: Sequence[str] = (),
) -> InputJob:  # fmt: skip
    """Return a job that goes through the data again and again."""
    graph = open_runnable(str(model), InputPipelineOptions(tuple(fetches)), inputs=inputs).graph
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
        name: job(style, data, model, preprocessing_of("-1..1"), 8, outputs)
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

    from deploykit.data.tfdata import decoded_lines, example_spec

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
    with serving(2) as address:
        for what, data, count in (("CSV", table, lines), ("TFRecord", records, records.records)):
            seen = call("deploykit.data.tfdata_service:check_epoch", data, address)
            what = f"tf.data service, 2 workers, {what}: records of an epoch, each once"
            found.append(Figure(what, "", [seen], at_least=count, at_most=count))
    return found


def as_records(source: Path, name: str) -> Data:
    """Return data as TFRecords, converted by `deploykit records` unless that was done before."""
    folder = RESULTS / "data" / f"{name}.records"
    if not folder.exists():
        run(deploykit("records", "convert", str(source), str(folder), "--shard-size", "2"))
    return open_data(str(folder))


EXPERIMENTS = (sum_sign, text_rating, images)


def figures() -> list[Figure]:
    """Measure all experiments, and write the page."""
    found, page = [], [_TOP.format(measured_on=measured_on())]
    for each in (each for make in EXPERIMENTS for each in make()):
        more, section = each.measured()
        found += more
        page += section
    PAGE.write_text("\n".join(page))
    return [*found, *parsing(), *epoch()]


_TOP = """# Input

Written by `python -m tests.benchmarks input`. Each style runs in its own
process, interleaved with the others; values are medians of 5 rounds. A wait of 20 ms without CPU
use stands for the model on an accelerator; the utilization column is the share of time spent in
this wait. The columns of the articles are their training time saved over feed_dict and their GPU
utilization.

{measured_on}
"""
