"""How files reach a model, and what is run behind them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deploykit.benchmarking.settings import INPUTS
from deploykit.transforms.core.errors import GraphError

if TYPE_CHECKING:
    from deploykit.input.preprocessing import Preprocessing
    from deploykit.transforms.core.graph import Graph


@dataclass(frozen=True)
class Piping:
    """How files reach a model that is measured behind them, and what of it is run."""

    fetches: Sequence[str] = ()
    """Tensors, or ops such as a training step, to run in place of the outputs."""
    init: Sequence[str] = ()
    """Ops that are run once, before."""
    wait_ms: float | None = None
    """Wait so long in place of computing, as for an accelerator: it takes no CPU."""
    preprocess: Any = None
    """What becomes of the features: a JSON file, or what it holds; default: what the model was
    written with, or else what its inputs ask for."""
    on_error: str = "stop"
    """`stop`, or `skip`, which leaves out damaged images, also in TFRecords."""
    shuffle: bool = False
    """Whether files, and records near each other, change places, seed 0."""
    cache: str | None = None
    """What tf.data keeps after parsing: nothing, or in `memory`, or in a new file."""
    buckets: Sequence[int] = ()
    """Lengths at which tf.data divides texts, so that batches hold texts of like length."""
    private_threads: int | None = None
    """Of a pool of tf.data's own; default: it shares the session's."""
    workers: int | None = None
    """How many workers of a tf.data service are started, to read for the style tfdata."""
    address: str | None = None
    """HOST:PORT, where such a service runs already."""
    pipeline: Any = None
    """One's own tf.data function, `module:function` or the function itself, which is called with
    the data's path, and with `batch` and `epochs` where it takes them. It is measured beside the
    style tfdata, and alone without data, or with data that only it can read."""

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
            known = ", ".join(map(repr, INPUTS))
            raise GraphError("input-style-without-files", got=style, known=known)
        if asked:
            raise GraphError(
                "option-needs",
                option="how input is read from files",
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
        served = self.workers is not None or self.address is not None
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
        if self.workers is not None and self.address is not None:
            raise GraphError(
                "give-one", options=["the workers of a tf.data service", "its address"]
            )
        if self.pipeline is None:
            return STYLES if style in (None, "all") else (str(style),)
        beside = {"all": STYLES, None: ("tfdata",), PIPELINE: ()}.get(style, (str(style),))
        return (*beside, PIPELINE)


PIPELINE = "pipeline"
"""The style of one's own tf.data function."""
PLAIN = Piping()
