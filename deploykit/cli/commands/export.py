"""Write a model as a version that TensorFlow Serving loads."""

import click

from deploykit.cli import options
from deploykit.cli.options.types import Names, PathName
from deploykit.exporting.manifests import KINDS
from deploykit.freezing.interface import Source
from deploykit.serving.saved_model.warmup_limits import MOST, USUAL


def _kinds(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    for kind in value:
        if kind not in (*KINDS, "all"):
            raise click.BadParameter(f"{kind!r} is none of: {', '.join(KINDS)}, all", ctx, param)
    return KINDS if "all" in value else value


@click.command()
@options.source
@click.argument("base_dir", type=PathName())
@click.option("--name", metavar="NAME", help="What requests call the model [default: the name of "
              "its file or folder].")  # fmt: skip
@click.option("--version", type=click.IntRange(min=0), metavar="N", help="Number of the version, "
              "not taken yet [default: the one after the highest].")  # fmt: skip
@click.option("--method", type=click.Choice(("predict", "classify", "regress")),
              help="classify and regress add a signature of that name that takes tf.Examples, "
              "beside the one that takes tensors [default: what a SavedModel's signature says, or "
              "predict].")  # fmt: skip
@click.option("--warmup", type=PathName("DATA"), help="Samples to run before the version answers: "
              "a .npz file of arrays by input name, or a folder of TFRecords, images or CSV "
              "files.")  # fmt: skip
@click.option("--warmup-samples", type=click.IntRange(1, MOST), default=USUAL, show_default=True,
              metavar="N", help="Keep so many of them, up to 1000: of arrays at even distances, of "
              "a folder the first.")  # fmt: skip
@options.preprocess
@click.option("--manifests", type=Names(), default=(), metavar="KINDS",
              callback=_kinds,
              help="Files to write into BASE_DIR for all models in it, one or more of config "
              "(models.config, monitoring.config, a template of ssl.config), docker (Dockerfile "
              "for TensorFlow Serving, one for deploykit serve, compose.yaml), kubernetes "
              "(Deployment, Service, HorizontalPodAutoscaler, PodDisruptionBudget), kserve "
              "(InferenceService, ServingRuntime); or all.")  # fmt: skip
@click.option("--batching", is_flag=True, help="Write batching.config into BASE_DIR, and let the "
              "other files turn batching on.")  # fmt: skip
@click.option("--tuned", type=PathName("FILE"), help="Settings that deploykit tune wrote, for "
              "threads, batches and environment in these files.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace existing files in BASE_DIR; never a "
              "version.")  # fmt: skip
@options.limits
@options.everywhere
def export(
    source: Source,
    base_dir: str,
    name: str | None,
    version: int | None,
    method: str | None,
    warmup: str | None,
    warmup_samples: int,
    preprocess: str | None,
    manifests: tuple[str, ...],
    batching: bool,
    tuned: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write a model as BASE_DIR/NAME/N/, which TensorFlow Serving loads.

    The folder appears whole, under a number that no other has, and is never replaced. Signatures of
    a SavedModel keep their names and those of inputs and outputs; with --signature, one of them is
    kept alone and answers by default. Any other model gets one, named --signature or
    serving_default, with the names in the graph.
    """
    import deploykit
    from deploykit.benchmarking.results import load_tuned
    from deploykit.benchmarking.settings import Settings
    from deploykit.cli.report import Report, show
    from deploykit.exporting.deployment import Manifests

    settings = Settings() if tuned is None else load_tuned(tuned)
    report = Report("export", source.model)
    found = deploykit.export(
        source,
        base_dir,
        name=name,
        version=version,
        method=method,
        warmup=warmup,
        warmup_samples=warmup_samples,
        preprocess=preprocess,
        manifests=Manifests(manifests, batching, settings, force),
    )
    report.output_file = str(found.folder)
    report.bytes_out = found.bytes
    report.more = found.document()
    show(report, as_json, text=found.lines())
