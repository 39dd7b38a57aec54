"""How a model is run: threads, batches, devices, and what else a benchmark tries."""

import click

from deploykit.benchmarking.precision import PRECISIONS
from deploykit.benchmarking.scenarios.timing import SCENARIOS, Timing
from deploykit.benchmarking.settings import EXECUTORS, INPUTS, SECONDS
from deploykit.benchmarking.sweep import Sweep
from deploykit.cli.options.grouping import as_one
from deploykit.cli.options.headings import under
from deploykit.cli.options.types import (
    Blocktime,
    Counts,
    DeviceName,
    Finite,
    OneOrMore,
    PathName,
    Switch,
    Threads,
    Whole,
)
from deploykit.hardware.allocators import ALLOCATORS
from deploykit.transforms.core.engines.engines import (
    ENGINES,
    MOST_BATCH,
    MOST_REQUESTS,
    MOST_THREADS,
)

DEFAULT = ("default",)


_setting = under("Settings to measure")
sweep = as_one(
    "sweep",
    Sweep,
    _setting("--batch", type=Counts(MOST_BATCH), default=(), help="Samples in a batch; each of "
             "several numbers is measured [default: what the model demands, or 1]."),
    _setting("--engine", type=OneOrMore(ENGINES), default=(), help="What computes: tensorflow or "
             "openvino, or both in turn, whose answers are compared before [default: the engine "
             "that the model was written for, else TensorFlow]."),
    _setting("--threads", type=Threads(), default=(), help="Threads inside an op, such as 2, or "
             "x ops at the same time, such as 2x1, which is the same as 2 [default: "
             "TensorFlow's]."),
    _setting("--onednn", type=Switch(), default=(), help="Whether TensorFlow uses oneDNN's "
             "kernels."),
    _setting("--caller-thread", type=Switch(), default=(), help="Whether the thread that calls "
             "oneDNN does a share of the work itself."),
    _setting("--keep-memory", type=Switch(), default=(), help="Whether the C library keeps freed "
             "memory for later (MALLOC_* variables)."),
    _setting("--concurrency", type=Counts(MOST_REQUESTS), default=(), help="Calls at the same "
             "time [default: 1]."),
    _setting("--executor", type=OneOrMore(DEFAULT + EXECUTORS), default=(),
             help="Who runs the ops of a call: threads of TensorFlow's own (default), or one by "
             "one the thread that makes it (caller); single is that by an executor of TensorFlow's "
             "that refuses loops and conditions of TensorFlow 1."),
    _setting("--allocator", type=OneOrMore(DEFAULT + ALLOCATORS), default=(),
             help="What gives memory: the C library (default), tcmalloc where that is installed, "
             "or the C library with pages of 2 MiB (huge-pages)."),
    _setting("--kmp-blocktime", type=Blocktime(), help="Set KMP_BLOCKTIME, as old guides advise, "
             "and measure with and without it."),
    _setting("--kmp-affinity", metavar="TEXT", help="Set KMP_AFFINITY, likewise."),
    _setting("--omp-num-threads", type=Whole(1, MOST_THREADS), metavar="N",
             help="Set OMP_NUM_THREADS, likewise."),
    _setting("--xla", is_flag=True, help="Compile with XLA (auto-clustering)."),
    _setting("--precision", type=OneOrMore(PRECISIONS), default=(), help="In what layers are "
             "computed; each of several is measured: fp32, tf32 or fp16 on a GPU, fp32 or bf16 on "
             "the CPU [default: what TensorFlow takes for float32, which newer GPUs multiply in "
             "tf32]."),
    _setting("--bf16", is_flag=True, help="The same as --precision bf16."),
    _setting("--input", type=click.Choice((*INPUTS, "queue", "pipeline", "all")),
             help="How data reach the model: fed with each call, through tf.data with prefetch, or "
             "not at all: resident inputs lie on the device, and no output leaves it [default: "
             "feed, and on a GPU resident too]. From files (--data DIR) also through queues, or "
             "all in turn [default: all], or through --pipeline alone."),
    _setting("--device", type=DeviceName(), help="Device to run on; all: a copy of the model on "
             "every GPU, compared with gpu:0 alone [default: cpu]. To compare layouts, use "
             "deploykit transform --transforms 'convert_layout(to=NCHW)'."),
    _setting("--tuned", "base", type=PathName("FILE"),
             help="Start from the settings that deploykit tune wrote; options given here win."),
)  # fmt: skip
timing = as_one(
    "timing",
    Timing,
    click.option("--duration", "seconds", type=Finite(above=0), default=SECONDS, show_default=True,
                 metavar="SECONDS", help="How long each model and setting is measured at most."),
    click.option("--runs", type=Whole(1), metavar="N", help="Measure this many calls instead of "
                 "--duration."),
    click.option("--scenario", type=click.Choice(SCENARIOS), help="Measure each alone, as MLPerf "
                 "does: one call after another, all samples, or calls that arrive at random."),
    click.option("--rate", type=Finite(above=0), metavar="CALLS", help="In scenario server, calls "
                 "that arrive in a second."),
    click.option("--latency-limit", type=Finite(above=0), metavar="MS", help="There, what 99 % of "
                 "calls may take at most, or the result is not valid."),
)  # fmt: skip
