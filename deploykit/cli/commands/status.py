"""Say how a server and its models are."""

import click

from deploykit.cli import options
from deploykit.serving.client.connection import Connection


@click.command()
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
    """Say how a server is, or the versions of one of its models and what they take.

    The TensorFlow Serving API has no call that lists the models of a server, so name one. Without
    MODEL, the server's health service is asked, which TensorFlow Serving has on request alone.
    Exit status 5: the server says that it does not serve, or no version of the model answers.

    \b
    deploykit status localhost:8500
    deploykit status localhost:8500 flowers
    """  # noqa: D301  click reads the backslash
    from deploykit.calling.server_status import ServerHealth, Versions
    from deploykit.cli.report import Report, show
    from deploykit.serving.client.client import Client
    from deploykit.transforms.core.errors import VerificationError

    if model is None and (version is not None or version_label):
        raise click.UsageError("--version and --version-label are of a model, but none is named")
    report = Report("status")
    with Client(address, connection) as client:
        if model is None:
            found: ServerHealth | Versions = ServerHealth(address, client.health())
        else:
            states = client.status(model, version=version, label=version_label)
            ready = any(each.state == "AVAILABLE" for each in states)
            signatures = (
                client.metadata(model, version=version, label=version_label) if ready else {}
            )
            found = Versions(address, model, states, signatures)
    report.more = found.document()
    show(report, as_json, text=found.text(), output=output, force=force)
    if found.problem:
        raise VerificationError(found.problem)
