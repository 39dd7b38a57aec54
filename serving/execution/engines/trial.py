"""An engine tried on this machine before it serves: in a child process, against TensorFlow's words.

A crash, a deadline or a departure from the answers that lie beside the version ends the trial, and
nothing else.
"""

import contextlib
import logging
import time
from collections.abc import Sequence
from pathlib import Path

from deploykit.serving.execution.engines.engine import HERE, Loading
from deploykit.serving.execution.engines.openvino_engine import KeptGraphs, OpenVinoEngine
from deploykit.serving.protocol.errors import ServingError
from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.engines.compiled_cache import CompiledCache
from deploykit.transforms.engines.engine_folder import FOLDER, MANIFEST, read
from deploykit.transforms.engines.engine_manifest import EngineAnswer, EngineFolder
from deploykit.transforms.engines.equivalence import Answered, departure
from deploykit.transforms.engines.openvino_model import OpenVinoModel, imported
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.runtime.child_process import call
from deploykit.transforms.untrusted.side_effects import refuse_side_effects

logger = logging.getLogger("deploykit")


def engine_of(folder: Path, content: EngineFolder, loading: Loading) -> OpenVinoEngine:
    """Return what computes a version on this machine, once a child process has tried it.

    GraphError, LimitError: OpenVINO refuses it, dies of it, takes too long, or departs from what
    TensorFlow answers. RefusedError: its graph would act beyond the model.
    """
    start = time.monotonic()
    cache = CompiledCache.of_user()
    retained = None
    if cache is not None:
        with contextlib.suppress(FileError):
            retained = KeptGraphs(cache, folder / FOLDER / MANIFEST, loading)
    if retained is not None and (result := _kept(content, loading, retained)) is not None:
        words = "%s: OpenVINO %s, compiled and tried at an earlier start; it took %.1f s"
        logger.info(words, folder, result.version, time.monotonic() - start)
        return result
    mebibytes = call(f"{__name__}:tried", str(folder), loading, runs="OpenVINO")
    make = OpenVinoModel if retained is None else retained.compile
    engine = OpenVinoEngine(content, loading, make)
    seconds = time.monotonic() - start
    words = "%s: OpenVINO %s gives TensorFlow's answers here; it took %.0f MiB and %.1f s to try"
    logger.info(words, folder, engine.version, mebibytes, seconds)
    return engine


def _kept(content: EngineFolder, loading: Loading, retained: KeptGraphs) -> OpenVinoEngine | None:
    """Return an engine of graphs that an earlier start kept; None: not all can be loaded."""
    try:
        with retained.guarded():
            return OpenVinoEngine(content, loading, retained.load)
    except (KeyError, GraphError):
        return None


def tried(folder: str, loading: Loading) -> float:
    """Return the memory that a version takes in OpenVINO, in MiB; this is for a child process.

    Raises what `engine_of` says.
    """
    import psutil

    content = read(Path(folder))
    if content is None:
        raise GraphError("engine-folder-gone", source=folder, folder=FOLDER)
    graph = Graph.from_graph_def(GraphDef.FromString(content.graph_def))
    refuse_side_effects(graph, loading.allow_ops)
    imported()
    before = psutil.Process().memory_info().rss
    engine = OpenVinoEngine(content, loading)
    for name in content.signatures:
        compare(
            engine,
            content,
            name,
            [answer for answer in content.answers if answer.signature == name],
        )
    return float(psutil.Process().memory_info().rss - before) / (1 << 20)


def compare(
    engine: OpenVinoEngine, content: EngineFolder, name: str, answers: Sequence[EngineAnswer]
) -> None:
    """Raise GraphError where an engine departs from TensorFlow's answers for a signature."""
    answered = []
    for answer in answers:
        outputs = list(answer.expected)
        try:
            result = engine.compute(name, answer.feeds, outputs, None, HERE)
        except ServingError as error:
            raise GraphError(
                "engine-fails-at-batch", name=name, batch=answer.batch, reason=error
            ) from None
        answered.append(Answered(answer.batch, answer.expected, result))
    if fault := departure(answered, content.bars[name]):
        raise GraphError("engine-departs", name=name, reason=fault)
