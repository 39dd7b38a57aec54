"""The Graph Transform Tool, asked one transform string at a time in a child that may die of it.

TensorFlow 2.21 still holds it behind a private binding. It aborts and hangs on some graphs; then
the next question goes to another child.
"""

import re
from dataclasses import dataclass

from deploykit.transforms.common.errors import CrashError, LimitError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.runtime.child_process import ResourceLimits, Worker

SECONDS = 20.0


@dataclass(frozen=True)
class Answer:
    """What became of a question: exactly one of a graph, an error, a signal or a timeout."""

    graph_def: bytes | None = None
    error: str = ""
    signal: str = ""  # its name, and in `error` the last line that the child wrote
    timed_out: bool = False

    def graph(self, asked: Graph) -> Graph:
        """Return the resulting graph, with the inputs and outputs that were given."""
        assert self.graph_def is not None, f"the original gave no graph: {self}"
        graph_def = GraphDef.FromString(self.graph_def)
        return Graph.from_graph_def(graph_def, asked.inputs, asked.outputs)


class Tool:
    """What runs in the child."""

    def __init__(self) -> None:
        import tensorflow  # noqa: F401  the binding needs its libraries

    def transform(self, graph_def: bytes, texts: list[bytes]) -> Answer:
        """Return what the binding makes of a graph; texts are inputs, outputs and transforms."""
        from tensorflow.python.util import _pywrap_transform_graph as tool

        try:
            return Answer(graph_def=tool.TransformGraphWithStringInputs(graph_def, *texts))
        except Exception as error:  # whatever the binding raises is its answer
            return Answer(error=str(error))


class Original:
    """The tool in a child, which starts with the first question."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def ask(
        self,
        graph: Graph,
        transforms: str,
        seconds: float = SECONDS,
        inputs: str | None = None,
        outputs: str | None = None,
    ) -> Answer:
        """Return what the original makes of a graph and a transform string.

        `inputs` and `outputs` are the comma-separated lists, where they are not the graph's own.
        """
        names = [",".join(graph.inputs), ",".join(graph.outputs)]
        given = [n if g is None else g for n, g in zip(names, (inputs, outputs), strict=True)]
        texts = [text.encode() for text in (*given, transforms)]
        if self._worker is None:
            self._worker = Worker(f"{__name__}:{Tool.__name__}")
            self._worker.created()
        try:
            with ResourceLimits(seconds, None, show_log=False):
                answer: Answer = self._worker.ask("transform", b"".join(graph.serialized()), texts)
                return answer
        except LimitError as error:
            self.close()
            return Answer(timed_out=error.code.endswith("-timeout"), error=str(error))
        except CrashError as error:
            self.close()
            (name,) = re.findall(r"died of (\w+)", str(error))
            return Answer(signal=name, error=str(error))

    def close(self) -> None:
        """End the child."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
