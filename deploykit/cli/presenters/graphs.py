"""Output of the commands that read and rewrite graphs."""

import logging
from typing import Annotated, Any

import click

from deploykit.cli.call import Invocation, refuse_twice
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.flag import Flag

logger = logging.getLogger("deploykit")


def ship(call: Invocation) -> None:
    """Print the stages."""
    value = call.result()
    call.report.output_file = str(value.folder)
    call.show(value, written=str(value.folder) if value.stages else None)


def _rewritten(call: Invocation) -> Any:
    """Return the rewritten graph, and store how it was made in the report."""
    graph = call.result()
    call.report.output_file, call.report.made = call.values["output"], graph.report.rewriting
    return graph


def freeze(call: Invocation) -> None:
    """Print the input, the output and the comparison."""
    _rewritten(call)
    call.show()


def optimize(call: Invocation, *, verify: Annotated[bool, Flag(hidden="--verify")] = False) -> None:
    """Print the input, the output and the comparison.

    Args:
        verify: Deprecated: the result is always compared.
    """
    if verify:
        logger.warning("--verify is deprecated: optimize always compares the result")
    freeze(call)


def transform(call: Invocation) -> None:
    """Print the steps, and advice on further transforms."""
    from deploykit.transforms.common.errors import PipelineError
    from deploykit.transforms.ir.pipeline import parse

    if not parse(call.values["transforms"]):
        raise PipelineError("transforms-empty")
    from deploykit.pipelines.rewrite import advice

    graph = _rewritten(call)
    call.show()
    before, steps = graph.report.model.graph, call.values["transforms"]
    if not call.as_json:
        for line in advice(before, graph, steps, bool(call.values["inputs"])):
            logger.info("%s", line)


_HINT = (
    "with --calibration DATA, layers run in int8 too: 1.5x to 2x faster than float32 on most "
    "image models (x86, AVX2 or VNNI)"
)


def quantize(call: Invocation) -> None:
    """Print the precision of each layer, even if nothing is written."""
    from deploykit.pipelines.rewrite import SLOW
    from deploykit.quantization.result import Quantized
    from deploykit.transforms.common.errors import NotQuantizedError

    try:
        graph = _rewritten(call)
    except NotQuantizedError as error:
        made: Any = error.report
        call.report.error = error
        call.report.output_file, call.report.made = None, made.rewriting
        _quantized(call, made)
        return
    _quantized(call, graph.report)
    is_stored = not isinstance(graph.report, Quantized)
    if is_stored and not graph.report.is_float and not call.as_json:
        logger.info(SLOW if call.values["mode"] == "nodes" else _HINT)


def _quantized(call: Invocation, made: Any) -> None:
    from deploykit.cli.output import files_table, own_text
    from deploykit.quantization.result import Quantized
    from deploykit.rendering.formatters.quantization import lines, weight_lines

    call.report.more, call.report.fed = document(made), made.fed
    if isinstance(made, Quantized):
        call.show(text=[files_table(call.report), *lines(made)])
    else:
        call.show(text=[*own_text(call.report), *weight_lines(made)])


def inspect(call: Invocation) -> None:
    """Print the contents of the model."""
    value = call.result()
    call.report.of(value.model)
    call.show(value)


def check(call: Invocation) -> None:
    """Print the findings. Raises the first error that makes the model invalid."""
    value = call.result()
    call.report.bytes_in = value.bytes
    call.report.nodes_in = sum(graph.nodes + graph.function_nodes for graph in value.graphs)
    call.report.error = value.error
    call.show(value)


def diff(call: Invocation) -> None:
    """Print the differences, and exit with 5 if there are any."""
    from deploykit.transforms.common.errors import VerificationError

    value = call.result()
    call.report.output_file = call.values["second"]
    call.report.between(value.first, value.second)
    call.show(value)
    if not value.equal:
        raise click.exceptions.Exit(VerificationError.exit_status)


def list_transforms(call: Invocation) -> None:
    """Print one transform, or a line for each."""
    value = call.result()
    call.report.input_file = None
    call.show(value)


def calibrate(call: Invocation) -> None:
    """Print the ranges."""
    value = call.result()
    call.report.of(value.model)
    call.report.bytes_in, call.report.bytes_out = None, value.bytes
    call.show(value, written=call.values["output"])


def sensitivity(call: Invocation, *, top: Annotated[int | None, Flag(metavar="N")] = None) -> None:
    """Print the layers by noise.

    Args:
        top: Show only the N noisiest layers [default: all].
    """
    value = call.result()
    call.report.of(value.model)
    call.report.nodes_out = value.nodes
    call.show(value, top=top)


def verify(call: Invocation) -> None:
    """Print the differences. Raises an error if there are any, or if nothing was compared."""
    from deploykit.cli.output import files_table
    from deploykit.rendering.formatters.models import verification_lines
    from deploykit.transforms.common.errors import UnverifiedError, VerificationError

    value = call.result()
    result = call.values["result"]
    call.report.output_file = result
    call.report.between(*value.models)
    if value.differs:
        call.report.error = VerificationError("outputs-differ", source=result, reason=value.reason)
    elif not value.verified and not call.values["allow_unverified"]:
        call.report.error = UnverifiedError(
            "not-verified", source=result, reason=value.reason, advice=value.advice
        )
    call.show(value, text=[files_table(call.report), *verification_lines(value)])


def accuracy(call: Invocation) -> None:
    """Print the metric of each model."""
    refuse_twice(call.values["models"])
    value = call.result()
    call.report.of(value.models[0].opened)
    call.show(value)


def placement(call: Invocation, *, log: bool = False) -> None:
    """Print the device of each node.

    Args:
        log: Only print `name: (Op): device` for each node of the model, like TensorFlow's
            log_device_placement.
    """
    from deploykit.inspection.placement import EnginePlacement
    from deploykit.transforms.common.errors import GraphError

    if log and call.as_json:
        raise GraphError("give-one", options=["--log", "--json"])
    value = call.result()
    call.report.of(value.model)
    if log and isinstance(value, EnginePlacement):
        raise GraphError(
            "only-for", option="--log", what="nodes in TensorFlow (--engine tensorflow)"
        )
    call.show(value, text=value.log() if log else None)
