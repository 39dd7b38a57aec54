"""Write a model as a version that TensorFlow Serving loads."""

import click

from deploykit.cli import options
from deploykit.cli.options.grouping import each_once
from deploykit.cli.options.manifest_kinds import kinds
from deploykit.cli.options.types import MOST_INT64, Alias, Names, PathName, Whole
from deploykit.exporting.limits import MOST_PIXELS
from deploykit.freezing.interface import Source
from deploykit.serving.saved_model.warmup_limits import MOST, USUAL

_photos = options.under("Photos and classes")
_elsewhere = options.under("Files that run it elsewhere")


@options.command(
    "Version",
    requires=("tensorflow",),
    runs_graph=True,
    examples=(
        "deploykit export fashion.pb served --warmup models/fashion/test_1000.npz",
        "deploykit export fashion.pb served --preprocess 0..1",
        "deploykit export fashion.pb served --input-alias photo=images",
        "deploykit export fashion.pb served --method classify --manifests docker",
    ),
)
@options.source
@click.argument("base_dir", type=PathName())
@click.option("--name", metavar="NAME", help="The model's name in requests [default: the name of "
              "its file or folder].")  # fmt: skip
@click.option("--version", type=Whole(0, MOST_INT64), metavar="N", help="Number of the version, "
              "which must be free [default: one above the highest].")  # fmt: skip
@click.option("--signature-name", type=Names(), metavar="NAME[,NAME...]", help="What clients call "
              "the signature; with several names, each is written with the same inputs and outputs "
              "[default: serving_default].")  # fmt: skip
@click.option("--input-alias", "input_aliases", type=Alias(), multiple=True, callback=each_once,
              help="What clients call an input of this signature: a tensor, or its present name; "
              "may be repeated.")  # fmt: skip
@click.option("--output-alias", "output_aliases", type=Alias(), multiple=True, callback=each_once,
              help="The same for an output.")  # fmt: skip
@click.option("--method", type=click.Choice(("predict", "classify", "regress")),
              help="classify and regress add a signature of that name that takes tf.Examples, "
              "beside the one that takes tensors [default: what the SavedModel's signature says, "
              "or predict].")  # fmt: skip
@options.data_option("--warmup", type=PathName("DATA"), help="Samples that the server runs before "
                     "the version answers its first request: a .npz file of arrays by input name, "
                     "a folder of TFRecords, images or CSV files, or DIR/NAME where DIR holds "
                     "records of several names.")  # fmt: skip
@options.data_option("--warmup-samples", type=Whole(1, MOST), default=USUAL, show_default=True,
                     metavar="N", help="How many of these samples are kept, at most 1000: of "
                     "arrays evenly spread, of files the first.")  # fmt: skip
@options.data_option("--warmup-preprocess", type=PathName("FILE.json|LO..HI|known"),
                     help="What becomes of the files of --warmup on their way to the inputs, as "
                     "--preprocess of calibrate and benchmark says it [default: what --preprocess "
                     "says, or what is known of the model].")  # fmt: skip
@click.option("--engine", type=click.Choice(("tensorflow", "openvino", "auto")),
              help="Also write what OpenVINO reads, for deploykit serve --engine, once it was "
              "compared with TensorFlow at every output; auto: where it is right, openvino: or end "
              "with an error [default: auto for a graph of deploykit quantize --engine openvino, "
              "else tensorflow].")  # fmt: skip
@_photos("--preprocess", type=PathName("FILE.json|LO..HI|known"), help="Put what becomes of photos "
         "in front of the model, so that callers send files: decoding, resizing, the range of "
         "values. Takes what --preprocess of calibrate and benchmark takes, or the word known, for "
         "what is known of the model.")  # fmt: skip
@_photos("--labels", type=PathName("FILE"), help="File with the names of the classes, one a line: "
         "answers then name the best 5 [default with --preprocess: the labels that are kept beside "
         "the model].")  # fmt: skip
@_photos("--max-pixels", "most_pixels", type=Whole(1), default=MOST_PIXELS, show_default=True,
         metavar="N", help="Refuse larger images before they are decoded.")  # fmt: skip
@_elsewhere("--manifests", type=Names(), default=(), metavar="KINDS", callback=kinds,
            help="Also write files to BASE_DIR that serve all its models: config (models.config, "
            "monitoring.config, a template of ssl.config), docker (Dockerfiles for TensorFlow "
            "Serving and for deploykit serve, one without TensorFlow where OpenVINO computes all "
            "models, compose.yaml), kubernetes (Deployment, Service, "
            "HorizontalPodAutoscaler, PodDisruptionBudget), kserve (InferenceService, "
            "ServingRuntime), or all; separated by commas.")  # fmt: skip
@_elsewhere("--batching", is_flag=True, help="Write batching.config too, and turn batching on in "
            "the other files.")  # fmt: skip
@_elsewhere("--tuned", type=PathName("FILE"), help="Take threads, batches and environment of these "
            "files from what deploykit tune wrote; a batch above 1 turns batching on.")  # fmt: skip
@options.output_option("--force", is_flag=True, help="Replace existing files in BASE_DIR, but "
                       "never a version.")  # fmt: skip
@options.allowed_ops
@options.limits
@options.everywhere
def export(
    source: Source,
    base_dir: str,
    name: str | None,
    version: int | None,
    signature_name: tuple[str, ...] | None,
    input_aliases: dict[str, str],
    output_aliases: dict[str, str],
    method: str | None,
    warmup: str | None,
    warmup_samples: int,
    warmup_preprocess: str | None,
    engine: str | None,
    preprocess: str | None,
    labels: str | None,
    most_pixels: int,
    manifests: tuple[str, ...],
    batching: bool,
    tuned: str | None,
    force: bool,
    allowed_ops: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write a model as a version that TensorFlow Serving loads.

    The folder BASE_DIR/NAME/N/ appears only when it is complete, under a new number, and is never
    replaced. The signatures of a SavedModel keep their names and those of their inputs and outputs;
    with --signature, only that one is kept, as the default. Any other model gets one signature,
    serving_default, with the names of inputs and outputs in the graph. --signature-name,
    --input-alias and --output-alias give it the names that existing clients send. With
    --preprocess, serving_default takes photos as files (bytes), the signature pixels decoded ones
    (uint8), and the signature tensors what the model itself takes.
    """
    import deploykit
    from deploykit.benchmarking.results import load_tuned
    from deploykit.benchmarking.settings import Settings
    from deploykit.cli.report import Report, show
    from deploykit.exporting.deployment import Manifests
    from deploykit.text.results.exported import lines

    settings = Settings() if tuned is None else load_tuned(tuned)
    report = Report("export", source.model)
    found = deploykit.export(
        source,
        base_dir,
        name=name,
        version=version,
        signature_name=signature_name,
        input_aliases=input_aliases,
        output_aliases=output_aliases,
        method=method,
        warmup=warmup,
        warmup_samples=warmup_samples,
        warmup_preprocess=warmup_preprocess,
        engine=engine,
        preprocess=preprocess,
        labels=labels,
        most_pixels=most_pixels,
        manifests=Manifests(manifests, batching, settings, force, tuned or "tuned", tuned),
        allowed_ops=allowed_ops,
    )
    report.output_file = str(found.folder)
    report.bytes_out = found.bytes
    report.more, report.fed = found.document(), found.fed
    show(report, as_json, text=lines(found))
