"""Which values the tensors of a model hold."""

import os
from dataclasses import replace
from typing import Any

from deploykit.freezing.open_model import open_model, path_of
from deploykit.input.samples import open_feeds
from deploykit.quantization.calibration import Calibration
from deploykit.quantization.calibration import calibrate as observe
from deploykit.storage.files import check_output, write
from deploykit.text.progress import working


def calibrate(
    model: Any,
    data: Any,
    *,
    preprocess: Any = None,
    method: str = "minmax",
    batch: int | None = None,
    allowed_ops: tuple[str, ...] = (),
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> Calibration:
    """Run a model on samples and return the range of each of its float32 tensors.

    Args:
        model: whatever `open_model` takes; a GraphDef file is taken as it stands.
        data: 64 samples or more like those of real use: arrays by input name, a `tf.data.Dataset`,
            an `.npz` file, or a folder of TFRecords, images or CSV files.
        preprocess: what becomes of the features of files: a JSON file, what it holds, or the
            range of photos, such as `0..1`.
        method: minmax takes the smallest and the largest value; mse the range within these on which
            rounding to 8 bits has the least mean squared error, and runs the samples twice.
        batch: samples at once; default: what the model demands, or 8.
        allowed_ops: ops that are run although they act on files or processes.
        output: a `.json` file to write the ranges to, which `transform` and `sensitivity` read.
        force: whether to replace it where it exists.

    FileError, GraphError: the samples do not fit, there is none, or an activation holds NaN or Inf.

    Example:
        >>> found = deploykit.calibrate("fashion.keras", "test_1000.npz", batch=100)
        >>> found.ranges.samples
        1000
    """
    if output is not None:
        check_output(output, force, *path_of(model))
    with working("calibrate") as work:
        opened = open_model(model)
        opened.refuse_effects(allowed_ops)
        feeds, fed = open_feeds(data, opened.graph, preprocess, batch)
        found = observe(
            opened.graph, feeds, method=method, model_sha256=opened.sha256, advance=work
        )
    size = None
    if output is not None:
        size = write(output, [found.ranges.text().encode()], force)
    return replace(found, model=opened, bytes=size, fed=fed)
