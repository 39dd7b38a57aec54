"""Which values the tensors of a model hold."""

from dataclasses import replace
from typing import Annotated

from deploykit.api.public import Command, public
from deploykit.freezing.open_model import open_model, path_of
from deploykit.input.samples import open_feeds
from deploykit.quantization.calibration import Calibration, RangeMethod
from deploykit.quantization.calibration import calibrate as observe
from deploykit.storage.files import check_output, write
from deploykit.text.progress import working
from deploykit.transforms.core.display.flag import ALLOW_OP, FORCE, PREPROCESS, Flag, output_flag
from deploykit.transforms.core.engines.engines import MOST_BATCH
from deploykit.verification.public_types import DataLike, ModelLike, PathLike, PreprocessLike


@public(Command(heading="Calibration", runs_graph=True, writes_result=False))
def calibrate(
    model: ModelLike,
    data: Annotated[DataLike, Flag("--data", metavar="DATA", heading="Data")],
    *,
    preprocess: Annotated[PreprocessLike | None, PREPROCESS] = None,
    method: RangeMethod = "minmax",
    batch: Annotated[int | None, Flag(at_most=MOST_BATCH)] = None,
    allow_ops: Annotated[tuple[str, ...], ALLOW_OP] = (),
    output: Annotated[PathLike | None, output_flag(".ranges.json", "text output")] = None,
    force: Annotated[bool, FORCE] = False,
) -> Calibration:
    """Record the value range of each tensor of a model.

    Runs the model on the data and writes a JSON file that can be edited: for each float tensor its
    smallest and largest value, and the mean and smallest value of each channel. Quantization maps
    these ranges to int8.

    Args:
        model: whatever `open_model` takes; a GraphDef file is taken as it stands.
        data: At least 64 representative samples: a .npz file of arrays by input name, a folder of
            TFRecords, images or CSV files, or DIR/NAME if DIR contains records of several names.
        method: minmax: the full range of values; mse: the range with the smallest int8 error, which
            runs the samples twice.
        batch: Samples in a batch [default: the model's fixed batch, or 8].
        output: a `.json` file to write the ranges to, which `transform` and `sensitivity` read.

    FileError, GraphError: the samples do not fit, there is none, or an activation holds NaN or Inf.

    Commands:
        deploykit calibrate fashion.pb --data models/fashion/test_1000.npz
        deploykit calibrate fashion.pb --data models/fashion/test_1000.npz
            --method mse -o mse.json

    Example:
        >>> found = deploykit.calibrate("fashion.keras", "test_1000.npz", batch=100)
        >>> found.ranges.samples
        1000
    """
    if output is not None:
        check_output(output, force, *path_of(model))
    with working("calibrate") as work:
        opened = open_model(model)
        opened.refuse_effects(allow_ops)
        feeds, fed = open_feeds(data, opened.graph, preprocess, batch)
        found = observe(
            opened.graph, feeds, method=method, model_sha256=opened.sha256, advance=work
        )
    size = None
    if output is not None:
        size = write(output, [found.ranges.text().encode()], force)
    return replace(found, model=opened, bytes=size, fed=fed)
