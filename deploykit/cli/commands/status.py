"""Say how a server and its models are."""

import click

from deploykit.cli import options
from deploykit.serving.client.connection import Connection


@options.command(
    "",
    examples=(
        "deploykit status localhost:8500",
        "deploykit status localhost:8500 fashion",
    ),
)
@click.argument("address")
@click.argument("model", required=False)
@options.which_version
@options.connection
@options.result_file
@options.everywhere
def status(
    address: str,
    model: str | None,
    version: int | None,
    version_label: str,
    connection: Connection,
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Show whether a server is healthy, or a model is served.

    With MODEL, its versions and their inputs and outputs are shown; the TensorFlow Serving API
    cannot list the models of a server. Without MODEL, the server's health service is asked, which
    TensorFlow Serving offers only if it was started so. Exit status 5: the server is not serving,
    or no version of the model is available.
    """
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.text.server_status import health_lines, version_tables
    from deploykit.transforms.core.errors import VerificationError

    report = Report("status")
    found = deploykit.status(
        address, model, version=version, version_label=version_label, connection=connection
    )
    report.more = found.document()
    text = health_lines if model is None else version_tables
    show(report, as_json, text=text(report.more), output=output, force=force)
    if found.problem:
        raise VerificationError(found.problem)
