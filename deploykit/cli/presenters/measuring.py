"""Output of the commands that measure, and of those for data."""

import json
import os
from typing import Annotated, Any

from deploykit.cli.call import Invocation, refuse_twice
from deploykit.transforms.common.errors import Error
from deploykit.transforms.common.flag import Flag

PLOT = Flag("--plot", format="output", metavar="FILE.png|svg", heading="Output")


def benchmark(
    call: Invocation,
    *,
    top: Annotated[int, Flag(at_least=0, metavar="N")] = 10,
    csv_file: Annotated[str | None, Flag("--csv", format="text output", heading="Output")] = None,
    plot_file: Annotated[str | None, PLOT] = None,
    trace_file: Annotated[
        str | None, Flag("--trace", format="text output", metavar="FILE.json", heading="Output")
    ] = None,
) -> None:
    """Print the latencies, and write the other requested files.

    Args:
        top: Number of nodes to list in a profile.
        csv_file: Write the metrics of each measurement to a CSV file; - is standard output.
        plot_file: Plot latency, throughput and batch sizes.
        trace_file: Profile, and write one run of each model as a trace for chrome://tracing or
            ui.perfetto.dev; - is standard output.
    """
    from deploykit.benchmarking.tables import csv_lines
    from deploykit.data.input_speed.input_result import InputResult
    from deploykit.storage.files import write
    from deploykit.transforms.common.messages import escaped

    values, force = call.values, call.values["force"]
    named = {"--csv": csv_file, "--plot": plot_file, "--trace": trace_file}
    _refuse_beside_files(values, named)
    refuse_twice([*values["models"], *filter(None, (values["output"], *named.values()))])
    if plot_file is not None:
        from deploykit.reporting.charts.plots import check_plot, plot

        check_plot(plot_file)
    values["profile"] = values["profile"] or trace_file is not None
    values["models"] = [*values["models"]]
    value = call.result()
    if isinstance(value, InputResult):
        call.report.of(value.model)
        call.show(value)
    else:
        call.report.of(value.models[values["models"][0]])
        call.show(value, top=top)
        if csv_file is not None:
            lines = map(escaped, csv_lines(value)) if csv_file == "-" else csv_lines(value)
            write(csv_file, [f"{line}\n".encode() for line in lines], force)
        if plot_file is not None:
            write(plot_file, [plot(value, plot_file)], force)
        if trace_file is not None and value.profiles:
            from deploykit.benchmarking.profiling.traced_calls import trace

            calls = {name: item.events for name, item in value.profiles.items()}
            write(trace_file, [json.dumps(trace(calls)).encode()], force)
    if value.interrupted:
        raise KeyboardInterrupt


def _refuse_beside_files(values: Any, named: Any) -> None:
    """Raise Error for output files that a benchmark of an input pipeline does not write."""
    from deploykit.data.pipeline import InputPipelineOptions

    if InputPipelineOptions(pipeline=values["pipeline"]).reads_files(
        values["data"], values["input"]
    ):
        for option, path in named.items():
            if path is not None:
                raise Error("option-conflicts-files", option=option)


def compare(call: Invocation) -> None:
    """Print the ratios. Raises an error if one is below the limit."""
    b, baseline, limit = (call.values[name] for name in ("b", "baseline", "fail_below"))
    if (b is None) == (baseline is None):
        raise Error("give-one", options=["B.json", "--baseline"])
    value = call.result()
    call.report.output_file = b or baseline
    if limit is not None:
        call.report.check(value.check, limit)
    call.show(value)


def gate(
    call: Invocation,
    *,
    junit_file: Annotated[
        str | None,
        Flag("--junit", format="text output", metavar="FILE.xml", heading="Output"),
    ] = None,
) -> None:
    """Print the checks, and write the other requested file. Raises an error unless all pass.

    Args:
        call: the run of the command.
        junit_file: Write the checks as tests in JUnit XML; - is standard output.
    """
    from deploykit.gating.formats import junit_xml
    from deploykit.storage.files import write

    values = call.values
    outputs = (values["output"], junit_file)
    refuse_twice([path for path in outputs if path is not None])
    call.report.output_file = values["candidate"]
    value = call.result()
    if junit_file is not None:
        write(junit_file, [junit_xml(value)], values["force"])
    call.report.check(value.check)
    call.show(value)


def tune(call: Invocation) -> None:
    """Print the recommended settings."""
    value, output = call.result(), call.values["output"]
    call.report.of(value.model)
    call.report.bytes_out = None if output == "-" else os.path.getsize(output)
    call.show(value, written=output)


def report(call: Invocation) -> None:
    """Print the path of the page."""
    from deploykit.api.report import default_page
    from deploykit.rendering.templates import size

    results = [*call.values["results"]]
    call.values["results"] = results
    output = call.values["output"] or default_page(results[0])
    call.values["output"] = call.report.output_file = output
    value = call.result()
    call.report.bytes_out = len(value.html.encode())
    shown = ", ".join(dict.fromkeys(value.kinds))
    line = f"{os.fspath(value.output or '')}: {shown}, {size(call.report.bytes_out)}"
    call.show(value, text=[line])


def doctor(call: Invocation) -> None:
    """Print the properties of the machine."""
    call.show(call.result())


def label(
    call: Invocation,
    *,
    image_file: Annotated[str | None, Flag("--image", format="path")] = None,
    graph: Annotated[
        str | None, Flag("--graph", format="path", metavar="MODEL", heading="Model")
    ] = None,
    root_dir: Annotated[str, Flag("--root_dir --root-dir", format="path", metavar="DIR")] = "",
) -> None:
    """Print the classes with the highest scores.

    Args:
        image_file: The image, instead of the argument IMAGE.
        graph: The same as --model.
        root_dir: Folder of the image and the model [default: the current folder].
    """
    image = _one("IMAGE", call.values["image"], "--image", image_file)
    model = _one("--model", call.values["model"], "--graph", graph)
    if root_dir:  # as in label_image, absolute paths are relative to it too
        image, model = (f"{root_dir.rstrip('/')}/{path.lstrip('/')}" for path in (image, model))
    call.values |= {"image": image, "model": model}
    call.report.input_file = model
    value = call.result()
    call.report.of(value.graph)
    call.show(value)


def _one(first: str, value: str | None, second: str, other: str | None) -> str:
    """Return a value that can be given in two ways. Error: it is missing or given twice."""
    results = [item for item in (value, other) if item is not None]
    if len(results) != 1:
        raise Error("give-one", options=[first, second])
    return results[0]


def write_input(call: Invocation) -> None:
    """Print the code, or the name of the written file."""
    value, output = call.result(), call.values["output"]
    if output is not None:
        call.report.bytes_out = os.path.getsize(output)
    text = None if output is None else [f"{output}: tf.data for {call.values['data']}"]
    call.show(value, text=text)


def infer(call: Invocation) -> None:
    """Print the columns, the skipped rows and the written files."""
    value = call.result()
    call.report.output_file = call.values["out"]
    call.report.inputs, call.report.outputs = tuple(value.fed), tuple(value.outputs)
    call.show(value)


def convert_records(call: Invocation) -> None:
    """Print the features and the written shards."""
    value, folder = call.result(), call.values["folder"]
    call.report.input_file, call.report.output_file = ", ".join(call.values["sources"]), folder
    call.report.bytes_out = value.bytes
    call.show(value, written=folder)


def inspect_records(call: Invocation) -> None:
    """Print the features and the first record."""
    value = call.result()
    call.report.bytes_in = None if value.index is None else value.index.bytes
    call.show(value)


def verify_records(call: Invocation) -> None:
    """Print the damaged shards. Raises an error if there are any."""
    value = call.result()
    call.report.bytes_in = value.bytes
    call.report.check(value.check)
    call.show(value)
