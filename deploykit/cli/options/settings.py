"""How a model is run: threads, batches, devices, and what else a benchmark tries."""

import click

from deploykit.benchmarking.settings import INPUTS, Settings, Sweep
from deploykit.cli.options.grouping import as_one
from deploykit.cli.options.types import Blocktime, Counts, DeviceName, PathName, Switch, Threads


def tuned(ctx: click.Context, param: click.Parameter, value: str | None) -> Settings:
    """Return the settings in a file of `deploykit tune`, or none."""
    if value is None:
        return Settings()
    from deploykit.benchmarking.results import load_tuned

    return load_tuned(value)


sweep = as_one(
    "sweep",
    Sweep,
    click.option("--batch", type=Counts(), default=(), help="Samples at once; several are each "
                 "measured [default: what the model demands, or 1]."),
    click.option("--threads", type=Threads(), default=(), help="Threads inside an op x ops at once "
                 "[default: TensorFlow's]."),
    click.option("--onednn", type=Switch(), default=(), help="oneDNN's kernels."),
    click.option("--caller-thread", type=Switch(), default=(), help="Whether the thread that calls "
                 "oneDNN takes a share of the work."),
    click.option("--keep-memory", type=Switch(), default=(), help="Whether the C library keeps "
                 "freed memory (MALLOC_* variables)."),
    click.option("--concurrency", type=Counts(), default=(), help="Calls in flight [default: 1]."),
    click.option("--kmp-blocktime", type=Blocktime(), help="KMP_BLOCKTIME of old guides; also "
                 "measured without, to see whether it does anything."),
    click.option("--kmp-affinity", metavar="TEXT", help="KMP_AFFINITY, likewise."),
    click.option("--omp-num-threads", type=click.IntRange(min=1), metavar="N",
                 help="OMP_NUM_THREADS, likewise."),
    click.option("--xla", is_flag=True, help="Compile with XLA (auto-clustering)."),
    click.option("--bf16", is_flag=True, help="Let oneDNN compute in bfloat16."),
    click.option("--input", type=click.Choice((*INPUTS, "queue", "all")), help="How data reach the "
                 "model: fed with each call, or through tf.data with prefetch [default: feed]; "
                 "files (--data DIR) also through queues, or all in turn [default: all]."),
    click.option("--device", type=DeviceName(), help="Where it runs; all: a copy of the model "
                 "on every GPU, and on gpu:0 alone to compare [default: cpu]. Layouts are compared "
                 "with deploykit transform --transforms 'convert_layout(to=NCHW)'."),
    click.option("--tuned", "base", type=PathName("FILE"), callback=tuned,
                 help="Settings that deploykit tune wrote; options given here win."),
)  # fmt: skip
