"""What each command prints of its result, and the options that only matter there.

A presenter is called `call`, makes one call of the public function of its name, and shows the
result. Its keyword arguments are options of the command.
"""

import json
import logging
import os
import sys
from typing import Annotated, Any, Literal

import click

from deploykit.cli.call import Call
from deploykit.transforms.core.display.flag import Flag

logger = logging.getLogger("deploykit")

_ELSEWHERE = "Files that run it elsewhere"
_PLOT = Flag("--plot", format="output", metavar="FILE.png|svg", heading="Output")


def ship(call: Call) -> None:
    """Show the stages."""
    from deploykit.text.results.shipped import lines

    found = call.result()
    call.report.output_file = str(found.folder)
    call.show(lines(found.document(), str(found.folder)), found)


def _rewritten(call: Call) -> Any:
    """Return a graph that was made of another one, and take its facts."""
    graph = call.result()
    call.report.rewritten(graph, call.values["output"])
    return graph


def freeze(call: Call) -> None:
    """Show what was read and written."""
    _rewritten(call)
    call.show(None)


def optimize(call: Call, *, verify: Annotated[bool, Flag(hidden="--verify")] = False) -> None:
    """Show what was read and written.

    Args:
        call: the call.
        verify: Deprecated: the result is always compared.
    """
    if verify:
        logger.warning("--verify is deprecated: optimize always compares the result")
    freeze(call)


def transform(call: Call) -> None:
    """Show the steps, and what would suit the graph."""
    from deploykit.rewriting.advice import advice

    for name in ("model", "output", "dump"):
        if call.values[name] is not None:
            call.values[name] = os.path.expanduser(call.values[name])  # as the original does
    graph = _rewritten(call)
    if call.values["dump"] is not None:
        call.report.more["dump"] = [str(path) for path in graph.report.dump]
    call.show(None)
    before, steps = graph.report.model.graph, call.values["transforms"]
    if not call.as_json:
        for line in advice(before, graph, steps, bool(call.values["inputs"])):
            logger.info("%s", line)


_HINT = (
    "with --calibration DATA, layers compute in 8 bits too, 1.5 to 2 times as fast as in "
    "float on most image networks (x86, AVX2 or VNNI)"
)


def quantize(call: Call) -> None:
    """Show what became of each layer, also where nothing is written."""
    from deploykit.quantization.result import Quantized
    from deploykit.rewriting.advice import SLOW
    from deploykit.transforms.core.errors import NotQuantizedError

    try:
        graph = _rewritten(call)
    except NotQuantizedError as error:
        call.report.made(error.report)
        call.report.output_file = None
        _quantized(call, error.report)
        raise
    _quantized(call, graph.report)
    is_stored = not isinstance(graph.report, Quantized)
    if is_stored and not graph.report.is_float and not call.as_json:
        logger.info(SLOW if call.values["mode"] == "nodes" else _HINT)


def _quantized(call: Call, made: Any) -> None:
    from deploykit.cli.report import files_table, own_text
    from deploykit.quantization.result import Quantized
    from deploykit.text.results.quantized import lines, weight_lines

    call.report.more = made.document()
    if isinstance(made, Quantized):
        call.show([files_table(call.report), *lines(made)])
    else:
        call.show([*own_text(call.report), *weight_lines(made)])


def inspect(call: Call) -> None:
    """Show what the model holds."""
    from deploykit.inspection.summary import lines

    found = call.result()
    call.report.of(found.model)
    call.report.more = found.document()
    call.show(lines(call.report.document()))


def check(call: Call) -> None:
    """Show the findings; raise the first that makes the model unsound."""
    from deploykit.inspection.soundness import lines

    found = call.result()
    call.report.bytes_in = found.bytes
    call.report.nodes_in = sum(graph.nodes + graph.function_nodes for graph in found.graphs)
    call.report.more = found.document()
    call.show(lines(call.report.document()))
    if found.error is not None:
        raise found.error


def diff(call: Call) -> None:
    """Show the differences; status 5 if there are any."""
    from deploykit.inspection.diff import lines
    from deploykit.transforms.core.errors import VerificationError

    found = call.result()
    call.report.output_file = call.values["second"]
    call.report.between(found.first, found.second)
    call.show(lines(found.document(), found.first.graph, found.second.graph), found)
    if not found.equal:
        raise click.exceptions.Exit(VerificationError.exit_status)


def list_transforms(call: Call) -> None:
    """Show one transform, or a line for each."""
    from deploykit.text.transform_list import lines

    found = call.result()
    call.report.input_file = None
    call.show(lines(found.transforms, whole=call.values["name"] is not None), found)


def calibrate(call: Call) -> None:
    """Show the ranges."""
    from deploykit.text.results.calibration import lines

    found = call.result()
    call.report.of(found.model)
    call.report.bytes_in, call.report.bytes_out = None, found.bytes
    call.show(lines(found, call.values["output"]), found)


def sensitivity(call: Call, *, top: Annotated[int | None, Flag(metavar="N")] = None) -> None:
    """Show the layers by noise.

    Args:
        call: the call.
        top: Show only the N noisiest layers [default: all].
    """
    from deploykit.text.results.sensitivity import lines

    found = call.result()
    call.report.of(found.model)
    call.report.nodes_out = found.nodes
    call.show(lines(found, call.values["model"], top), found)


def verify(call: Call) -> None:
    """Show the differences; raise if there are any, or nothing was compared."""
    from deploykit.transforms.core.errors import UnverifiedError, VerificationError
    from deploykit.verification.verify import ADVICE

    found = call.result()
    result = call.values["result"]
    call.report.verification, call.report.output_file = found, result
    call.report.between(*found.models)
    call.show(None)
    if found.differs:
        raise VerificationError(f"{result}: {found.reason}")
    if not found.verified and not call.values["allow_unverified"]:
        raise UnverifiedError(f"{result}: not verified: {found.reason}. {ADVICE}")


def _refuse_twice(paths: Any) -> None:
    for path in paths:
        if paths.count(path) > 1:
            raise click.UsageError(f"{path} is given more than once")


def accuracy(call: Call) -> None:
    """Show the metric of each model."""
    from deploykit.text.results.accuracy import lines

    _refuse_twice(call.values["models"])
    found = call.result()
    call.report.of(found.models[0].opened)
    call.show(lines(found), found)


def label(
    call: Call,
    *,
    image_file: Annotated[str | None, Flag("--image", format="path")] = None,
    root_dir: Annotated[str, Flag("--root_dir --root-dir", format="path", metavar="DIR")] = "",
) -> None:
    """Show the classes with the highest scores.

    Args:
        call: the call.
        image_file: The image, instead of the argument IMAGE.
        root_dir: Folder of image and model [default: the current one].
    """
    from deploykit.text.answers import class_lines

    images = [each for each in (call.values["image"], image_file) if each is not None]
    if len(images) != 1:
        raise click.UsageError("give one of IMAGE and --image")
    if root_dir:  # as for label_image, absolute paths lie below it too
        root = root_dir.rstrip("/")
        images = [f"{root}/{images[0].lstrip('/')}"]
        call.values["model"] = f"{root}/{call.values['model'].lstrip('/')}"
    call.values["image"], call.report.input_file = images[0], call.values["model"]
    found = call.result()
    call.report.of(found.graph)
    call.show(class_lines(found.predictions), found)


def write_input(call: Call) -> None:
    """Print the code, or name the file."""
    found, output = call.result(), call.values["output"]
    if output is None:
        said = found.text.removesuffix("\n")
    else:
        call.report.bytes_out = os.path.getsize(output)
        said = f"{output}: tf.data for {call.values['data']}"
    call.show([said], found)


def benchmark(
    call: Call,
    *,
    top: Annotated[int, Flag(at_least=0, metavar="N")] = 10,
    csv_file: Annotated[str | None, Flag("--csv", format="text output", heading="Output")] = None,
    plot_file: Annotated[str | None, _PLOT] = None,
    trace_file: Annotated[
        str | None,
        Flag("--trace", format="text output", metavar="FILE.json", heading="Output"),
    ] = None,
) -> None:
    """Show the latencies, and write what else is asked for.

    Args:
        call: the call.
        top: How many nodes a profile lists.
        csv_file: Write a line of figures for each measurement; - is standard output.
        plot_file: Draw latencies, throughput and batches.
        trace_file: Profile, and write a call of each model as a trace for chrome://tracing or
            ui.perfetto.dev; - is standard output.
    """
    from deploykit.benchmarking.profiling.profile_tables import profile_tables
    from deploykit.benchmarking.tables import csv_lines, tables
    from deploykit.input.input_result import InputResult
    from deploykit.storage.files import write
    from deploykit.text.results.input_styles import lines

    values, force = call.values, call.values["force"]
    named = {"--csv": csv_file, "--plot": plot_file, "--trace": trace_file}
    _refuse_beside_files(values, named)
    _refuse_twice([*values["models"], *filter(None, (values["output"], *named.values()))])
    if plot_file is not None:
        from deploykit.reporting.plots import check_plot, plot

        check_plot(plot_file)
    values["profile"] = values["profile"] or trace_file is not None
    values["models"] = [*values["models"]]
    found = call.result()
    if isinstance(found, InputResult):
        call.report.of(found.model)
        call.show(lines(found), found)
    else:
        call.report.of(found.models[values["models"][0]])
        text = tables(found)
        for name, each in found.profiles.items():
            text += ["", f"{name}:", *profile_tables(each, top)]
        call.show(text, found)
        if csv_file is not None:
            write(csv_file, [f"{line}\n".encode() for line in csv_lines(found)], force)
        if plot_file is not None:
            write(plot_file, [plot(found, plot_file)], force)
        if trace_file is not None and found.profiles:
            from deploykit.benchmarking.profiling.trace import trace

            calls = {name: each.events for name, each in found.profiles.items()}
            write(trace_file, [json.dumps(trace(calls)).encode()], force)
    if found.interrupted:
        raise KeyboardInterrupt


def _refuse_beside_files(values: Any, named: Any) -> None:
    """Raise UsageError for files that are not written of a benchmark of input."""
    from deploykit.input.piping import Piping

    if Piping(pipeline=values["pipeline"]).reads_files(values["data"], values["input"]):
        for option, path in named.items():
            if path is not None:
                raise click.UsageError(f"{option} does not go with data that are read from files")


def compare(call: Call) -> None:
    """Show the ratios; raise where one is below the limit."""
    from deploykit.text.results.speedups import lines

    b, baseline, limit = (call.values[name] for name in ("b", "baseline", "fail_below"))
    if (b is None) == (baseline is None):
        raise click.UsageError("give either B.json or --baseline to compare A.json with")
    found = call.result()
    call.report.output_file = b or baseline
    for warning in found.warnings:
        logger.warning("%s", warning)
    call.show(lines(found), found)
    if limit is not None:
        found.check(limit)


def tune(call: Call) -> None:
    """Show the recommended settings."""
    from deploykit.text.results.tuning import lines

    found, output = call.result(), call.values["output"]
    call.report.of(found.model)
    call.report.bytes_out = None if output == "-" else os.path.getsize(output)
    call.show(lines(found, output), found)


def placement(call: Call, *, log: bool = False) -> None:
    """Show where nodes ran.

    Args:
        call: the call.
        log: Print `name: (Op): device` for each node of the model instead, as TensorFlow's
            log_device_placement does.
    """
    from deploykit.inspection.engine_placement import EnginePlacement
    from deploykit.text.results.placement import engine_lines, lines
    from deploykit.transforms.core.errors import GraphError

    if log and call.as_json:
        raise click.UsageError("give either --log or --json")
    found = call.result()
    call.report.of(found.model)
    if isinstance(found, EnginePlacement):
        if log:
            raise GraphError("--log is of TensorFlow's nodes (--engine tensorflow)")
        call.show(engine_lines(found), found)
    else:
        call.show(found.log() if log else lines(found), found)


def convert_records(call: Call) -> None:
    """Show what was written."""
    from deploykit.text.results.records import converted_lines

    found, folder = call.result(), call.values["folder"]
    call.report.input_file, call.report.output_file = ", ".join(call.values["sources"]), folder
    call.report.bytes_out = found.bytes
    call.show(converted_lines(found, folder), found)


def inspect_records(call: Call) -> None:
    """Show what records hold."""
    from deploykit.text.results.records import inspection_lines

    found = call.result()
    call.report.bytes_in = None if found.index is None else found.index.bytes
    call.show(inspection_lines(found), found)


def verify_records(call: Call) -> None:
    """Show what is damaged, and raise if something is."""
    from deploykit.text.results.records import verification_lines

    found = call.result()
    call.report.bytes_in = found.bytes
    call.show(verification_lines(found), found)
    found.check()


def infer(call: Call) -> None:
    """Show what was written."""
    from deploykit.text.results.inferred import lines

    found = call.result()
    call.report.output_file = call.values["out"]
    call.report.inputs, call.report.outputs = tuple(found.fed), tuple(found.outputs)
    call.show(lines(found), found)


def export(
    call: Call,
    *,
    manifests: Annotated[
        tuple[Literal["config", "docker", "kubernetes", "kserve"], ...],
        Flag(format="kinds", heading=_ELSEWHERE),
    ] = (),
    batching: Annotated[bool, Flag(heading=_ELSEWHERE)] = False,
    tuned: Annotated[str | None, Flag(format="path", heading=_ELSEWHERE)] = None,
    force: Annotated[bool, Flag(heading="Output")] = False,
) -> None:
    """Show the version that was written.

    Args:
        call: the call.
        manifests: Also write files to BASE_DIR that serve all its models: config (models.config,
            monitoring.config, a template of ssl.config), docker (Dockerfiles for TensorFlow Serving
            and for deploykit serve, one without TensorFlow where OpenVINO computes all models,
            compose.yaml), kubernetes (Deployment, Service, HorizontalPodAutoscaler,
            PodDisruptionBudget), kserve (InferenceService, ServingRuntime), or all; separated by
            commas.
        batching: Write batching.config too, and turn batching on in the other files.
        tuned: Take threads, batches and environment of these files from what deploykit tune wrote;
            a batch above 1 turns batching on.
        force: Replace existing files in BASE_DIR, but never a version.
    """
    from deploykit.benchmarking.results import load_tuned
    from deploykit.benchmarking.settings import Settings
    from deploykit.exporting.deployment import Manifests
    from deploykit.text.results.exported import lines

    settings = Settings() if tuned is None else load_tuned(tuned)
    found = call.result(
        manifests=Manifests(manifests, batching, settings, force, tuned or "tuned", tuned)
    )
    call.report.output_file, call.report.bytes_out = str(found.folder), found.bytes
    call.show(lines(found), found)


def serve(
    call: Call,
    *,
    use_alts_credentials: Annotated[
        bool, Flag("--use_alts_credentials", format="true or false", heading="Network")
    ] = False,
) -> None:
    """Serve until a signal comes, in a process whose environment is set before TensorFlow starts.

    Args:
        call: the call.
        use_alts_credentials: Not possible here; use --ssl_config_file.
    """
    if use_alts_credentials:
        raise click.UsageError("--use_alts_credentials works between machines of Google alone; use "
                               "--ssl_config_file")  # fmt: skip
    from deploykit.api.shipped import tuned_of
    from deploykit.cli.serve_environment import prepare_environment
    from deploykit.transforms.core.running.child import limits

    prepare_environment(tuned_of(call.values["base_dir"], call.values["tuned"]), limits.show_log)
    from deploykit.serving.server.process import own_process
    from deploykit.text.server_start import lines

    own_process()
    try:
        with call.result() as server:
            call.report.input_file = None
            call.report.more = server.document()
            call.show(lines(call.report.more))
            sys.stdout.flush()
            server.wait()
    except KeyboardInterrupt:  # before it listened
        pass
    sys.stdout.flush()
    os._exit(0)  # a call that was cut off may compute for long yet


def predict(
    call: Call,
    *,
    given: Annotated[
        tuple[str, ...], Flag("--input", format="named values", metavar="[NAME=]VALUE")
    ] = (),
) -> None:
    """Show the outputs.

    Args:
        call: the call.
        given: What to ask: a value such as 2.5 or [1, 2], a .npy file, an image, or any file for a
            model that takes text. May be repeated; NAME may be left out if the model has one input.
    """
    call.values["inputs"] = (*call.values["inputs"], *given)
    if not call.values["inputs"]:
        raise click.UsageError("nothing is asked: give a value or a file, such as photo.jpg")
    from deploykit.text.answers import prediction_lines

    found = call.result()
    call.report.input_file = None
    call.report.inputs, call.report.outputs = tuple(found.inputs), tuple(found.outputs)
    call.show(prediction_lines(found.outputs, found.classes, found.sources), found)


def status(call: Call) -> None:
    """Show whether the server is ready, or the versions of a model."""
    from deploykit.text.server_status import health_lines, model_lines, version_tables
    from deploykit.transforms.core.errors import VerificationError

    found = call.result()
    document = found.document()
    listed = model_lines if "models" in document else health_lines
    text = listed if call.values["model"] is None else version_tables
    call.show(text(document), found)
    if found.problem:
        raise VerificationError(found.problem)


def load_test(call: Call, *, plot_file: Annotated[str | None, _PLOT] = None) -> None:
    """Show latency over throughput.

    Args:
        call: the call.
        plot_file: Draw latency over throughput.
    """
    from deploykit.reporting.load_plot import plot_loads
    from deploykit.reporting.plots import check_plot
    from deploykit.storage.files import write
    from deploykit.text.loads import load_lines

    if plot_file is not None:
        check_plot(plot_file)
    found = call.result()
    document = found.document()
    if plot_file is not None:
        write(plot_file, [plot_loads(document, plot_file)], call.values["force"])
    call.report.inputs, call.report.outputs = tuple(found.takes.inputs), tuple(found.takes.outputs)
    call.show(load_lines(document), found)


def plan(call: Call, *, plot_file: Annotated[str | None, _PLOT] = None) -> None:
    """Show how many replicas are needed; raise where no number will do.

    Args:
        call: the call.
        plot_file: Draw p99 over the calls that each replica gets.
    """
    from deploykit.reporting.plan_plot import plot_plan
    from deploykit.reporting.plots import check_plot
    from deploykit.storage.files import write
    from deploykit.text.results.plan import lines
    from deploykit.transforms.core.errors import VerificationError

    if plot_file is not None:
        check_plot(plot_file)
    call.report.input_file = call.values["data"] or call.values["source"]
    call.report.output_file = None
    found = call.result()
    document = found.document()
    if plot_file is not None:
        write(plot_file, [plot_plan(document, plot_file)], call.values["force"])
    if found.takes is not None:
        call.report.inputs = tuple(found.takes.inputs)
        call.report.outputs = tuple(found.takes.outputs)
    call.show(lines(document), found)
    if found.problem:
        raise VerificationError(found.problem)


def report(call: Call) -> None:
    """Name the page."""
    from deploykit.api.report import default_page
    from deploykit.text.tables import size

    results = [*call.values["results"]]
    call.values["results"] = results
    output = call.values["output"] or default_page(results[0])
    call.values["output"] = call.report.output_file = output
    found = call.result()
    call.report.bytes_out = len(found.html.encode())
    shown = ", ".join(dict.fromkeys(found.kinds))
    line = f"{os.fspath(found.output or '')}: {shown}, {size(call.report.bytes_out)}"
    call.show([line], found)


def doctor(call: Call) -> None:
    """Show the machine."""
    from deploykit.text.machine_lines import lines

    found = call.result()
    call.show(lines(found.document()), found)
