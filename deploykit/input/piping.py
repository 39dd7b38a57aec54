"""How files reach a model, and what is run behind them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from deploykit.benchmarking.settings import INPUTS
from deploykit.storage.parameters import takes_former_names
from deploykit.transforms.core.display.flag import PREPROCESS, Flag
from deploykit.transforms.core.engines.engines import MOST_BATCH, MOST_THREADS
from deploykit.transforms.core.errors import GraphError
from deploykit.verification.public_types import InputFunction, PreprocessLike

if TYPE_CHECKING:
    from deploykit.input.preprocessing import Preprocessing
    from deploykit.transforms.core.graph import Graph


@takes_former_names
@dataclass(frozen=True)
class InputPipelineOptions:
    """How files reach a model that is measured behind them, and what of it is run."""

    HEADING: ClassVar = "Input from files"

    run_ops: Annotated[
        Sequence[str], Flag(hidden="--fetch", formerly="fetches", format="names")
    ] = ()
    """Run these ops or tensors instead of the outputs, for example a training step."""
    init: Annotated[Sequence[str], Flag(format="names")] = ()
    """Run these ops once at the start."""
    simulated_compute_ms: Annotated[
        float | None,
        Flag(hidden="--simulate-accelerator", formerly="wait_ms", metavar="MS", at_least=0),
    ] = None
    """Instead of running the model, wait this long per batch, so that the CPU is free to read."""
    preprocess: Annotated[PreprocessLike | None, PREPROCESS] = None
    on_error: Literal["stop", "skip"] = "stop"
    """Whether a damaged image, in a file or a TFRecord, ends the run or is skipped."""
    shuffle: bool = False
    """Shuffle the files and neighboring records, as for training."""
    cache: Annotated[str | None, Flag(format="path", metavar="memory|FILE")] = None
    """tf.data: keep parsed records in memory or in a file, so that later epochs read no data
    files."""
    buckets: Annotated[Sequence[int], Flag(format="counts", at_most=MOST_BATCH)] = ()
    """tf.data: batch texts of similar length together, to reduce padding; these lengths are the
    bucket boundaries."""
    private_threads: Annotated[int | None, Flag(at_most=MOST_THREADS)] = None
    """tf.data: read with this many private threads instead of the model's threads."""
    service_workers: Annotated[
        int | None, Flag(hidden="--service", formerly="workers", at_most=256)
    ] = None
    """Start this many tf.data service workers, which share the files and listen on all network
    interfaces. One epoch is checked first."""
    service_address: Annotated[str | None, Flag(formerly="address", metavar="HOST:PORT")] = None
    """Use the workers of a tf.data service that is already running."""
    pipeline: Annotated[
        str | InputFunction | None, Flag(format="text", metavar="MODULE:FUNCTION")
    ] = None
    """Run and measure your own tf.data function. It is called with the path from `data`, and with
    batch and epochs if it takes them. It is compared with `input` tfdata. It is measured alone with
    `input` pipeline, without `data`, or if only it can read the data."""

    def declared(self, graph: "Graph | None") -> "Preprocessing":
        """Return what becomes of the features. FileError, GraphError: it cannot be read."""
        from deploykit.input.preprocessing import declared_for

        return declared_for(graph, self.preprocess)

    def reads_files(self, data: Any, style: str | None = None) -> bool:
        """Say whether files are read while the model computes, or all data lie in memory before.

        GraphError: they are to be read, and there are none.
        """
        asked = self != PLAIN or style not in (None, *INPUTS)
        path = os.fspath(data) if isinstance(data, str | os.PathLike) else None
        if self.pipeline is not None and data is None and style in (None, PIPELINE):
            return True
        if path is not None:
            from deploykit.input.data import is_arrays

            return asked or not is_arrays(path)
        if style not in (None, *INPUTS):
            raise GraphError("input-style-without-files", got=style, known=INPUTS)
        if asked:
            raise GraphError(
                "option-needs",
                option="reading input from files",
                needed="data, a path (--data)",
            )
        return False

    def styles(self, style: str | None = None) -> tuple[str, ...]:
        """Return the styles of input that are measured. GraphError: options contradict them."""
        from deploykit.input.pipeline import STYLES

        if style not in (None, "all", PIPELINE, *STYLES):
            raise GraphError("not-one-of", what="the input", known=[*STYLES, "all"], got=style)
        if style == PIPELINE and self.pipeline is None:
            raise GraphError("input-style-pipeline")
        served = self.service_workers is not None or self.service_address is not None
        if served and (style != "tfdata" or self.pipeline is not None):
            raise GraphError("only-for", option="a tf.data service", what="input tfdata (--input)")
        if (self.cache or self.buckets or self.private_threads or served) and style not in (
            None, "all", "tfdata", PIPELINE,
        ):  # fmt: skip
            raise GraphError(
                "only-for",
                option="cache, buckets and private threads",
                what="input tfdata (--input)",
            )
        if self.service_workers is not None and self.service_address is not None:
            raise GraphError(
                "give-one", options=["the workers of a tf.data service", "its address"]
            )
        if self.pipeline is None:
            return STYLES if style in (None, "all") else (str(style),)
        beside = {"all": STYLES, None: ("tfdata",), PIPELINE: ()}.get(style, (str(style),))
        return (*beside, PIPELINE)


PIPELINE = "pipeline"
"""The style of one's own tf.data function."""
PLAIN = InputPipelineOptions()
