"""Tries an engine on this machine before it serves: a child process compares it with TensorFlow.

A crash, a timeout, or a difference from the reference outputs stored with the version only ends
that process.
"""

import contextlib
import logging
import time
from collections.abc import Sequence
from pathlib import Path

from deploykit.serving.execution.engines.engine import HERE, Loading
from deploykit.serving.execution.engines.openvino_engine import CachedGraphs, OpenVinoEngine
from deploykit.serving.protocol.errors import ServingError
from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.engines.compiled_cache import CompiledCache
from deploykit.transforms.engines.engine_folder import FOLDER, MANIFEST, read
from deploykit.transforms.engines.engine_manifest import EngineAnswer, EngineFolder
from deploykit.transforms.engines.openvino_model import OpenVinoModel, imported
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.runtime.child_process import call
from deploykit.transforms.runtime.differences import Answered, departure
from deploykit.transforms.untrusted.side_effects import refuse_side_effects

logger = logging.getLogger("deploykit")


def engine_of(folder: Path, content: EngineFolder, loading: Loading) -> OpenVinoEngine:
    """Return the engine of a version, once a child process has tried it on this machine.

    GraphError, LimitError: OpenVINO rejects it, crashes, takes too long, or differs from
    TensorFlow. RefusedError: its graph has effects outside the model.
    """
    start = time.monotonic()
    cache = CompiledCache.of_user()
    retained = None
    if cache is not None:
        with contextlib.suppress(FileError):
            retained = CachedGraphs(cache, folder / FOLDER / MANIFEST, loading)
    if retained is not None and (result := _kept(content, loading, retained)) is not None:
        words = "%s: OpenVINO %s loaded the compiled graphs from the cache in %.1f s"
        logger.info(words, folder, result.version, time.monotonic() - start)
        return result
    mebibytes = call(f"{__name__}:tried", str(folder), loading, runs="OpenVINO")
    make = OpenVinoModel if retained is None else retained.compile
    engine = OpenVinoEngine(content, loading, make)
    seconds = time.monotonic() - start
    words = "%s: OpenVINO %s matches TensorFlow on this machine (check: %.0f MiB, %.1f s)"
    logger.info(words, folder, engine.version, mebibytes, seconds)
    return engine


def _kept(content: EngineFolder, loading: Loading, retained: CachedGraphs) -> OpenVinoEngine | None:
    """Return an engine of graphs that an earlier start cached; None: not all can be loaded."""
    try:
        with retained.guarded():
            return OpenVinoEngine(content, loading, retained.load)
    except (KeyError, GraphError):
        return None


def tried(folder: str, loading: Loading) -> float:
    """Compare a version in a child process; return its memory in OpenVINO in MiB.

    It raises the errors of `engine_of`.
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
    """Raise GraphError if an engine differs from TensorFlow's reference outputs for a signature."""
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
