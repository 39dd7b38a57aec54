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
    found = call.result()
    call.report.output_file = str(found.folder)
    call.show(found, written=str(found.folder) if found.stages else None)


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
    found = call.result()
    call.report.of(found.model)
    call.show(found)


def check(call: Invocation) -> None:
    """Show the findings; raise the first that makes the model unsound."""
    found = call.result()
    call.report.bytes_in = found.bytes
    call.report.nodes_in = sum(graph.nodes + graph.function_nodes for graph in found.graphs)
    call.report.error = found.error
    call.show(found)


def diff(call: Invocation) -> None:
    """Show the differences; status 5 if there are any."""
    from deploykit.transforms.common.errors import VerificationError

    found = call.result()
    call.report.output_file = call.values["second"]
    call.report.between(found.first, found.second)
    call.show(found)
    if not found.equal:
        raise click.exceptions.Exit(VerificationError.exit_status)


def list_transforms(call: Invocation) -> None:
    """Show one transform, or a line for each."""
    found = call.result()
    call.report.input_file = None
    call.show(found)


def calibrate(call: Invocation) -> None:
    """Show the ranges."""
    found = call.result()
    call.report.of(found.model)
    call.report.bytes_in, call.report.bytes_out = None, found.bytes
    call.show(found, written=call.values["output"])


def sensitivity(call: Invocation, *, top: Annotated[int | None, Flag(metavar="N")] = None) -> None:
    """Show the layers by noise.

    Args:
        call: the call.
        top: Show only the N noisiest layers [default: all].
    """
    found = call.result()
    call.report.of(found.model)
    call.report.nodes_out = found.nodes
    call.show(found, top=top)


def verify(call: Invocation) -> None:
    """Show the differences; raise if there are any, or nothing was compared."""
    from deploykit.cli.output import files_table
    from deploykit.rendering.formatters.models import verification_lines
    from deploykit.transforms.common.errors import UnverifiedError, VerificationError
    from deploykit.verification.verify import ADVICE

    found = call.result()
    result = call.values["result"]
    call.report.output_file = result
    call.report.between(*found.models)
    if found.differs:
        call.report.error = VerificationError("outputs-differ", source=result, reason=found.reason)
    elif not found.verified and not call.values["allow_unverified"]:
        call.report.error = UnverifiedError(
            "not-verified", source=result, reason=found.reason, advice=ADVICE
        )
    call.show(found, text=[files_table(call.report), *verification_lines(found)])


def accuracy(call: Invocation) -> None:
    """Show the metric of each model."""
    refuse_twice(call.values["models"])
    found = call.result()
    call.report.of(found.models[0].opened)
    call.show(found)


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
    found = call.result()
    call.report.of(found.model)
    if log and isinstance(found, EnginePlacement):
        raise GraphError(
            "only-for", option="--log", what="the nodes of TensorFlow (--engine tensorflow)"
        )
    call.show(found, text=found.log() if log else None)
