"""Take a trained model to a served one."""

import click

from deploykit.cli import options
from deploykit.cli.options.manifest_kinds import kinds
from deploykit.cli.options.project_file import WithProjectFile
from deploykit.cli.options.types import Finite, Names, PathName
from deploykit.freezing.interface import Source
from deploykit.shipping.ship_options import DEVICES, MINUTES, TARGETS
from deploykit.transforms.core.engines.engines import CHOICES

_run = options.under("Run")


@click.command(
    cls=WithProjectFile,
    requires=("tensorflow", "matplotlib"),
    runs_graph=True,
    heading="What is shipped",
    examples=(
        "deploykit ship shapes.keras --calibration photos/train --eval photos/val",
        "deploykit ship shapes.keras -o shapes.ship --dry-run",
        "deploykit ship shapes.keras --from tune",
    ),
)
@options.source
@options.data_option("--calibration", type=PathName("DATA"), help="64 samples or more like those "
                     "of real use, with which layers are put in 8 bits: a .npz file of arrays by "
                     "input name, a folder of TFRecords, images or CSV files, or DIR/NAME where "
                     "DIR holds records of several names. Without it, an optimized float model is "
                     "shipped.")  # fmt: skip
@options.data_option("--eval", "evaluation", type=PathName("DATA"), help="Such samples with "
                     "labels, on which the accuracy before and after is taken.")  # fmt: skip
@options.data_option("--labels", type=PathName("FILE"), help="File with the names of the classes, "
                     "one a line.")  # fmt: skip
@options.data_option("--preprocess", type=PathName("FILE.json|LO..HI"), help="What becomes of "
                     "photos and other data before the model takes them: a JSON file, or the range "
                     "of photos, such as 0..1 [default: what is known of the model].")  # fmt: skip
@click.option("--name", metavar="NAME", help="The model's name in requests [default: the name of "
              "its file or folder].")  # fmt: skip
@click.option("--target", type=click.Choice(TARGETS), default=TARGETS[0], show_default=True,
              help="latency: the fastest answer to one call; throughput: the most samples a "
              "second; size: weights in 8 bits even where that is no faster.")  # fmt: skip
@click.option("--max-drop", type=Finite(0), default=0.01, show_default=True, help="How much the "
              "accuracy may fall on --eval data: 0.01 is one sample in a hundred.")  # fmt: skip
@click.option("--device", type=click.Choice(DEVICES), default=DEVICES[0], show_default=True,
              help="What is to compute the model; layers compute in 8 bits on CPUs "
              "alone.")  # fmt: skip
@click.option("--engine", type=click.Choice(CHOICES), default=CHOICES[0], show_default=True,
              help="What is to compute the model on a CPU; auto: openvino where it is installed, "
              "gives TensorFlow's answers, and is faster.")  # fmt: skip
@click.option("--manifests", type=Names(), default=(), metavar="KINDS", callback=kinds,
              help="Also write files that run it elsewhere: config, docker, kubernetes, kserve, or "
              "all; separated by commas.")  # fmt: skip
@click.option("--allow-low-accuracy", is_flag=True, help="Go on where the answers of the float "
              "model cannot be right: all of one class, or no better than guesses.")  # fmt: skip
@options.input_range
@options.allow_unverified
@options.allowed_ops
@_run("--budget", type=Finite(above=0), default=MINUTES, show_default=True, metavar="MINUTES",
      help="How long all of it may take, as far as that can be chosen: the searches and "
      "measurements take less where there is less.")  # fmt: skip
@_run("--from", "from_stage", metavar="STAGE", help="Do this stage and all after it anew: check, "
      "optimize, calibrate, quantize, verify, accuracy, placement, tune, benchmark, export or "
      "serve.")  # fmt: skip
@_run("--dry-run", is_flag=True, help="Show what would be done, and about how long it takes; run "
      "nothing.")  # fmt: skip
@options.output_option("-o", "--output", type=PathName("DIR"), help="Folder to write [default: "
                       "NAME.ship]. A later run in the same folder keeps what its inputs did not "
                       "change.")  # fmt: skip
@options.limits
@options.everywhere
def ship(
    source: Source,
    calibration: str | None,
    evaluation: str | None,
    labels: str | None,
    preprocess: str | None,
    name: str | None,
    target: str,
    max_drop: float,
    device: str,
    engine: str,
    manifests: tuple[str, ...],
    allow_low_accuracy: bool,
    input_range: tuple[float, float],
    allow_unverified: bool,
    allowed_ops: tuple[str, ...],
    budget: float,
    from_stage: str | None,
    dry_run: bool,
    output: str | None,
    as_json: bool,
) -> None:
    """Take a trained model to a served one, with one command.

    The stages are those of the other commands, in order: check, optimize, calibrate, quantize,
    verify, accuracy, placement, tune, benchmark, export, and a request to a served instance. The
    folder then holds model.pb, report.html, report.json, what deploykit tune found, and NAME/1,
    which TensorFlow Serving loads; `deploykit serve DIR` uses all of it.

    What each stage found is kept in the folder: after Ctrl-C the same command goes on, and a later
    one only does what its inputs changed. A stage that does not pay on this machine is left out,
    and the report says why.

    A file deploykit.toml in the current folder may hold every option, in a table [ship]; options on
    the command line win.
    """
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.text.results.shipped import lines

    report = Report("ship", source.model)
    found = deploykit.ship(
        source,
        output,
        from_stage=from_stage,
        dry_run=dry_run,
        calibration=calibration,
        evaluation=evaluation,
        labels=labels,
        preprocess=preprocess,
        name=name,
        target=target,
        max_drop=max_drop,
        device=device,
        engine=engine,
        manifests=manifests,
        allow_low_accuracy=allow_low_accuracy,
        input_range=input_range,
        allow_unverified=allow_unverified,
        allowed_ops=allowed_ops,
        budget=budget,
    )
    report.output_file, report.more = str(found.folder), found.document()
    show(report, as_json, text=lines(report.more, str(found.folder)))
