"""What commands that read and rewrite graphs print of their results."""

import logging
from typing import Annotated, Any

import click

from deploykit.cli.call import Invocation, refuse_twice
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.flag import Flag

logger = logging.getLogger("deploykit")


def ship(call: Invocation) -> None:
    """Show the stages."""
    value = call.result()
    call.report.output_file = str(value.folder)
    call.show(value, written=str(value.folder) if value.stages else None)


def _rewritten(call: Invocation) -> Any:
    """Return a graph that was made of another one, and take its facts."""
    graph = call.result()
    call.report.output_file, call.report.made = call.values["output"], graph.report.rewriting
    return graph


def freeze(call: Invocation) -> None:
    """Show what was read and written."""
    _rewritten(call)
    call.show()


def optimize(call: Invocation, *, verify: Annotated[bool, Flag(hidden="--verify")] = False) -> None:
    """Show what was read and written.

    Args:
        call: the call.
        verify: Deprecated: the result is always compared.
    """
    if verify:
        logger.warning("--verify is deprecated: optimize always compares the result")
    freeze(call)


def transform(call: Invocation) -> None:
    """Show the steps, and what would suit the graph."""
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
    "with --calibration DATA, layers compute in 8 bits too, 1.5 to 2 times as fast as in "
    "float on most image networks (x86, AVX2 or VNNI)"
)


def quantize(call: Invocation) -> None:
    """Show what became of each layer, also where nothing is written."""
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
    """Show what the model holds."""
    value = call.result()
    call.report.of(value.model)
    call.show(value)


def check(call: Invocation) -> None:
    """Show the findings; raise the first that makes the model unsound."""
    value = call.result()
    call.report.bytes_in = value.bytes
    call.report.nodes_in = sum(graph.nodes + graph.function_nodes for graph in value.graphs)
    call.report.error = value.error
    call.show(value)


def diff(call: Invocation) -> None:
    """Show the differences; status 5 if there are any."""
    from deploykit.transforms.common.errors import VerificationError

    value = call.result()
    call.report.output_file = call.values["second"]
    call.report.between(value.first, value.second)
    call.show(value)
    if not value.equal:
        raise click.exceptions.Exit(VerificationError.exit_status)


def list_transforms(call: Invocation) -> None:
    """Show one transform, or a line for each."""
    value = call.result()
    call.report.input_file = None
    call.show(value)


def calibrate(call: Invocation) -> None:
    """Show the ranges."""
    value = call.result()
    call.report.of(value.model)
    call.report.bytes_in, call.report.bytes_out = None, value.bytes
    call.show(value, written=call.values["output"])


def sensitivity(call: Invocation, *, top: Annotated[int | None, Flag(metavar="N")] = None) -> None:
    """Show the layers by noise.

    Args:
        call: the call.
        top: Show only the N noisiest layers [default: all].
    """
    value = call.result()
    call.report.of(value.model)
    call.report.nodes_out = value.nodes
    call.show(value, top=top)


def verify(call: Invocation) -> None:
    """Show the differences; raise if there are any, or nothing was compared."""
    from deploykit.cli.output import files_table
    from deploykit.rendering.formatters.models import verification_lines
    from deploykit.transforms.common.errors import UnverifiedError, VerificationError
    from deploykit.verification.verify import ADVICE

    value = call.result()
    result = call.values["result"]
    call.report.output_file = result
    call.report.between(*value.models)
    if value.differs:
        call.report.error = VerificationError("outputs-differ", source=result, reason=value.reason)
    elif not value.verified and not call.values["allow_unverified"]:
        call.report.error = UnverifiedError(
            "not-verified", source=result, reason=value.reason, advice=ADVICE
        )
    call.show(value, text=[files_table(call.report), *verification_lines(value)])


def accuracy(call: Invocation) -> None:
    """Show the metric of each model."""
    refuse_twice(call.values["models"])
    value = call.result()
    call.report.of(value.models[0].opened)
    call.show(value)


def placement(call: Invocation, *, log: bool = False) -> None:
    """Show where nodes ran.

    Args:
        call: the call.
        log: Print `name: (Op): device` for each node of the model instead, as TensorFlow's
            log_device_placement does.
    """
    from deploykit.inspection.engine_placement import EnginePlacement
    from deploykit.transforms.common.errors import GraphError

    if log and call.as_json:
        raise GraphError("give-one", options=["--log", "--json"])
    value = call.result()
    call.report.of(value.model)
    if log and isinstance(value, EnginePlacement):
        raise GraphError(
            "only-for", option="--log", what="the nodes of TensorFlow (--engine tensorflow)"
        )
    call.show(value, text=value.log() if log else None)
