"""Say how a server and its models are."""

import click

from deploykit.cli import options
from deploykit.serving.client.connection import Connection


@options.command(
    "",
    examples=(
        "deploykit status localhost:8500",
        "deploykit status localhost:8500 fashion",
        "deploykit status http://localhost:8501",
        "deploykit status http://localhost:8000 resnet --protocol v2",
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
    """Show whether a server is healthy, or which models and versions it serves.

    ADDRESS is host:port of gRPC, or a URL of REST. With MODEL, its versions and their inputs and
    outputs are shown. Without MODEL, REST lists all models of a server of deploykit; TensorFlow
    Serving has no such list. gRPC asks the health service, which TensorFlow Serving offers only if
    it was started so. With --protocol v2, it shows whether the server is live and ready. Exit
    status 5: the server is not serving, or a model has no available version.
    """
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.text.server_status import health_lines, model_lines, version_tables
    from deploykit.transforms.core.errors import VerificationError

    report = Report("status")
    found = deploykit.status(
        address, model, version=version, version_label=version_label, connection=connection
    )
    report.more = found.document()
    listed = model_lines if "models" in report.more else health_lines
    text = listed if model is None else version_tables
    if found.problem:
        report.error = VerificationError("server-not-serving", reason=found.problem)
    show(report, as_json, text=text(report.more), output=output, force=force)
