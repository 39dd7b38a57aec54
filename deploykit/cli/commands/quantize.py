"""Run the standard transforms on a model, put it in 8 bits, and verify the result."""

import logging
from typing import Any

import click

from deploykit.api.comparison import Comparison
from deploykit.cli import options
from deploykit.cli.options.types import Finite, PathName, Threads, Whole
from deploykit.freezing.interface import Source
from deploykit.quantization.requested import (
    CHOICES,
    MAX_DROP,
    MINUTES,
    MODES,
    PREFERENCES,
    Quantization,
)
from deploykit.transforms.core.engines.engines import MOST_BATCH
from deploykit.transforms.core.int8.isa import ISAS

logger = logging.getLogger("deploykit")

_HINT = (
    "with --calibration DATA, layers compute in 8 bits too, 1.5 to 2 times as fast as in "
    "float on most image networks (x86, AVX2 or VNNI)"
)


_static = options.under("With --calibration")
_weights = options.under("Without --calibration")


@options.command(
    "Quantization",
    requires=("tensorflow",),
    runs_graph=True,
    examples=(
        "deploykit quantize fashion.pb -o weights.pb",
        "deploykit quantize fashion.pb -o int8.pb \\\n"
        "      --calibration models/fashion/test_1000.npz",
    ),
)
@options.source
@options.output("quantized")
@click.option("--mode", type=click.Choice(MODES), default="auto", show_default=True,
              help="static: layers compute in 8 bits; weights: weights are stored in 8 bits, and "
              "layers compute in float; nodes: as the Graph Transform Tool did it; auto: static "
              "with --calibration or for a quantization-aware model, else weights.")  # fmt: skip
@_static("--calibration", type=PathName("DATA"), help="At least 64 samples like those of real use: "
         "a .npz file of arrays by input name, a folder of TFRecords, images or CSV files, or "
         "DIR/NAME where DIR holds records of several names. Every fourth sample is kept aside to "
         "check the result.")  # fmt: skip
@_static("--eval", "evaluation", type=PathName("DATA"), help="Samples with labels, on which "
         "--metric is taken.")  # fmt: skip
@_static("--metric", default="top1", show_default=True, metavar="NAME|MODULE:FUNCTION",
         help="What --max-drop limits: top1, top5, mae, or a function of yours that takes the "
         "outputs by name and the labels.")  # fmt: skip
@_static("--max-drop", type=Finite(0), default=MAX_DROP, show_default=True,
         help="How much worse the metric may become.")  # fmt: skip
@click.option("--min-sqnr", type=Finite(), metavar="DB", help="Smallest signal-to-noise ratio of "
              "the outputs; noisier results are not written [default: 15; with --calibration, "
              "which keeps layers in float until it is reached, that of --prefer].")  # fmt: skip
@_static("--prefer", type=click.Choice([*PREFERENCES]), default="accuracy", show_default=True,
         help="accuracy keeps 24 dB; speed keeps 18 dB, with more layers in 8 bits. With --eval, "
         "--max-drop says it instead.")  # fmt: skip
@_static("--keep-float", metavar="NODE", multiple=True, help="Keep this layer in float; may be "
         "repeated.")  # fmt: skip
@_static("--isa", type=click.Choice(ISAS), default="auto", show_default=True,
         help="Instruction set of the machine that the model will run on; auto is that of this "
         "machine.")  # fmt: skip
@_static("--engine", type=click.Choice(CHOICES), default=CHOICES[0], show_default=True,
         help="What the model is to be computed by. openvino: layers are chosen by noise and time "
         "there, and TensorFlow remains able to compute the result. auto: openvino where it is "
         "installed, gives TensorFlow's answers, and is faster.")  # fmt: skip
@_static("--batch", type=Whole(1, MOST_BATCH), metavar="N", help="Batch for which it should be "
         "fast [default: 1].")  # fmt: skip
@_static("--threads", type=Threads(), default=(), metavar="AxB", help="Threads inside an op x ops "
         "at the same time for which it should be fast [default: TensorFlow's].")  # fmt: skip
@_static("--whole-tokens", is_flag=True, help="Never compute the tokens of an encoder in two "
         "parts at once. By default, they are where that is significantly faster for one request "
         "at a time.")  # fmt: skip
@_static("--budget", type=Finite(above=0), default=MINUTES, show_default=True, metavar="MINUTES",
         help="How long the command may take. Where it needs more at least, it says so once it "
         "knows.")  # fmt: skip
@_static("--group-by", metavar="NAME", help="Also report SQNR and agreement per group of held-out "
         "samples, or of those of --eval. NAME is an array, column or feature with one text or "
         "integer per sample, or `folder` for images. [default: `group`, or image folders that "
         "are not the classes]")  # fmt: skip
@_static("--allow-low-accuracy", is_flag=True, help="Go on where the answers of the float model "
         "cannot be right: all of one class, or no better than guesses.")  # fmt: skip
@click.option("--allow-float", is_flag=True, help="Where int8 is significantly slower, too "
              "inaccurate or not possible, write the optimized float32 graph and exit 0 [default: "
              "write nothing and exit 5].")  # fmt: skip
@_weights("--minimum-size", type=Whole(1), default=1024, show_default=True,
          help="Keep weights with fewer elements in float.")  # fmt: skip
@_weights("--skip", metavar="NODE", multiple=True, help="Keep this constant in float; may be "
          "repeated.")  # fmt: skip
@options.comparison
@options.limits
@options.everywhere
def quantize(
    source: Source,
    output: str,
    force: bool,
    mode: str,
    calibration: str | None,
    evaluation: str | None,
    metric: str,
    max_drop: float,
    min_sqnr: float | None,
    prefer: str,
    keep_float: tuple[str, ...],
    isa: str,
    engine: str,
    batch: int | None,
    threads: tuple[tuple[int, int], ...],
    whole_tokens: bool,
    budget: float,
    group_by: str | None,
    allow_low_accuracy: bool,
    allow_float: bool,
    minimum_size: int,
    skip: tuple[str, ...],
    comparison: Comparison,
    as_json: bool,
) -> None:
    """Optimize a model and put it in 8 bits.

    With --calibration, layers run in int8. Layers that are too inaccurate or slower in int8 are
    kept in float32. Without --calibration, only the weights are stored in 8 bits: the file shrinks
    to about a quarter, and the speed stays the same.

    A quantization-aware model states its int8 scales (fake-quants, as TF-MOT leaves them). Its
    layers run in int8 with these, without --calibration.

    int8 is kept unless it is significantly slower than float32 or too inaccurate. Then, and where
    there is nothing to quantize, the command writes nothing and exits with status 5.

    The result is compared with the original before it is written. After Ctrl-C, the same command
    continues the search.
    """
    import deploykit
    from deploykit.cli.report import Report, files_table, own_text, show
    from deploykit.quantization.result import Quantized
    from deploykit.rewriting.advice import SLOW
    from deploykit.text.results.quantized import lines, weight_lines
    from deploykit.transforms.core.errors import NotQuantizedError

    if len(threads) > 1:
        raise click.UsageError("--threads takes one pair here, such as 2x1")
    report = Report("quantize", source.model)
    how = Quantization(
        mode=mode,
        min_sqnr=min_sqnr,
        prefer=prefer,
        metric=metric,
        max_drop=max_drop,
        keep_float=keep_float,
        isa=isa,
        engine=engine,
        batch=batch,
        threads=threads[0] if threads else None,
        budget=budget,
        whole_tokens=whole_tokens,
        group_by=group_by,
        allow_low_accuracy=allow_low_accuracy,
        allow_float=allow_float,
        minimum_size=minimum_size,
        skip=skip,
    )

    def tell(made: Any) -> None:
        report.more = made.document()
        if isinstance(made, Quantized):
            show(report, as_json, text=[files_table(report), *lines(made)])
        else:
            show(report, as_json, text=[*own_text(report), *weight_lines(made)])

    try:
        graph = deploykit.quantize(
            source,
            how,
            comparison=comparison,
            calibration=calibration,
            evaluation=evaluation,
            output=output,
            force=force,
        )
    except NotQuantizedError as error:
        report.made(error.report)
        report.error = error
        tell(error.report)
        raise
    report.rewritten(graph, output)
    tell(graph.report)
    is_stored = not isinstance(graph.report, Quantized)
    if is_stored and not graph.report.is_float and not as_json:
        logger.info(SLOW if mode == "nodes" else _HINT)
