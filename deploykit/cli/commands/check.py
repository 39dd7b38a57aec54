"""Say whether a model is sound."""

from deploykit.cli import options
from deploykit.cli.options.headings import limit_option
from deploykit.freezing.interface import Source


@options.command("", requires=("tensorflow",))
@options.part
@limit_option("--allow-op", "allowed_ops", metavar="OP", multiple=True, help="Accept this op "
              "although it acts on files, the network or processes; may be repeated.")  # fmt: skip
@options.result_file
@options.limits
@options.everywhere
def check(
    source: Source, allowed_ops: tuple[str, ...], output: str | None, force: bool, as_json: bool
) -> None:
    """Say whether a model is sound, before anything of it runs.

    Exits with 2 if it is not: a node that no op allows, an op that TensorFlow does not know and an
    output needs, a function without end, a file that asks for far more memory than it takes, or
    anything else for which TensorFlow's own importer refuses it. Exits with 3 if it is sound, but
    holds ops that act on files, the network or processes; of a SavedModel or a checkpoint, what
    stores its variables does not count. All findings are printed in any case.

    The bytes of the file are looked at before they are decoded, and TensorFlow works in a process
    of its own.
    """
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.inspection.soundness import lines

    report = Report("check", source.model)
    found = deploykit.check(source, allowed_ops=allowed_ops)
    report.bytes_in = found.bytes
    report.nodes_in = sum(graph.nodes + graph.function_nodes for graph in found.graphs)
    report.more = found.document()
    report.error = found.error
    show(report, as_json, text=lines(report.document()), output=output, force=force)
