"""Write a model as a version that TensorFlow Serving loads."""

import click

from deploykit import options


@click.command()
@options.source
@click.argument("base_dir")
@click.option("--name", metavar="NAME", help="What requests call the model [default: the name of "
              "its file or folder].")  # fmt: skip
@click.option("--version", type=click.IntRange(min=0), metavar="N", help="Number of the version, "
              "not taken yet [default: the one after the highest].")  # fmt: skip
@click.option("--method", type=click.Choice(("predict", "classify", "regress")),
              help="classify and regress add a signature of that name that takes tf.Examples, "
              "beside the one that takes tensors [default: what a SavedModel's signature says, or "
              "predict].")  # fmt: skip
@click.option("--warmup", metavar="DATA", help="Samples that are run before the version answers, "
              "at most 1000: a .npz file of arrays by input name, or a folder of TFRecords, images "
              "or CSV files.")  # fmt: skip
@options.preprocess
@options.limits
@options.everywhere
def export(
    source: options.Source,
    base_dir: str,
    name: str | None,
    version: int | None,
    method: str | None,
    warmup: str | None,
    preprocess: str | None,
    as_json: bool,
) -> None:
    """Write a model as BASE_DIR/NAME/N/, which TensorFlow Serving loads.

    The folder appears whole, under a number that no other has, and is never replaced. The signature
    of a SavedModel keeps its name and its inputs' and outputs' names; any other model gets one
    (--signature, or serving_default) with the names in the graph. Either answers by default.
    """
    from deploykit.exporting import export
    from deploykit.report import Report, progress, show, size

    report = Report("export", source.model)
    with progress("export"):
        found = export(
            source.model,
            base_dir,
            name=name,
            version=version,
            method=method,
            warmup=warmup,
            preprocess=preprocess,
            inputs=source.inputs,
            outputs=source.outputs,
            tags=source.tags,
            signature=source.signature,
            graph=source.graph_file,
            pins=dict(source.pins),
        )
    report.output_file = str(found.folder)
    report.bytes_out = found.bytes
    report.more = found.document()
    warm = f", {found.warm_up_requests} requests to warm up" if found.warm_up_requests else ""
    text = [*found.lines(), f"{found.folder}: {size(found.bytes)}{warm}"]
    show(report, as_json, text=text)
