"""Show what models run on here, and why TensorFlow sees no GPU."""

from deploykit.cli import options


@options.command("")
@options.result_file
@options.limits
@options.everywhere
def doctor(output: str | None, force: bool, as_json: bool) -> None:
    """Show the machine and the TensorFlow that models run on here.

    The machine and its limits, versions, how TensorFlow was built and is configured, the
    environment variables that change how it runs, and the GPU: its driver and the libraries that
    TensorFlow loads. If TensorFlow sees no GPU, the last line says why, and what to do.
    """
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.text.machine_lines import lines

    report = Report("doctor")
    report.more = deploykit.doctor().document()
    show(report, as_json, text=lines(report.more), output=output, force=force)
