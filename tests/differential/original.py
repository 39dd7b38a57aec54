"""The Graph Transform Tool, asked one transform string at a time in children that may die of it.

TensorFlow 2.21 still holds it behind a private binding. It aborts and hangs on some graphs, so a
worker process imports TensorFlow once and forks a child for each question.
"""

import multiprocessing
import os
import signal
import tempfile
from dataclasses import dataclass

from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.protos import GraphDef

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


class Original:
    """The worker; starts with the first question."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._worker = context.Process(target=_serve, args=(theirs,))
        self._worker.start()
        theirs.close()

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
        self._connection.send((b"".join(graph.serialized()), texts, seconds))
        answer: Answer = self._connection.recv()
        return answer

    def close(self) -> None:
        """End the worker."""
        self._connection.close()
        self._worker.join()


def _serve(connection) -> None:
    """Answer questions until the other end is closed."""
    import tensorflow  # noqa: F401  the binding needs its libraries

    while True:
        try:
            question = connection.recv()
        except EOFError:
            return
        connection.send(_in_a_child(*question))


def _in_a_child(graph_def: bytes, texts: list[bytes], seconds: float) -> Answer:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        child = context.Process(target=_transform, args=(theirs, log.fileno(), graph_def, texts))
        child.start()
        theirs.close()
        if not ours.poll(seconds):
            child.kill()
            child.join()
            return Answer(timed_out=True)
        try:
            return ours.recv()
        except EOFError:
            child.join()
            log.seek(0)
            said = [line for line in log.read().splitlines() if "Check failed" in line]
            name = signal.Signals(-child.exitcode).name
            return Answer(signal=name, error=said[-1] if said else "")
        finally:
            child.join()


def _transform(connection, log: int, graph_def: bytes, texts: list[bytes]) -> None:
    from tensorflow.python.util import _pywrap_transform_graph as tool

    os.dup2(log, 2)
    try:
        answer = Answer(graph_def=tool.TransformGraphWithStringInputs(graph_def, *texts))
    except Exception as error:  # whatever the binding raises is its answer
        answer = Answer(error=str(error))
    connection.send(answer)
    connection.close()
    os._exit(0)  # TensorFlow's own threads are none of the child's
