"""Quality of graphs against a float32 graph: SQNR, top-1 agreement, and accuracy with labels.

A child process stores the float32 graph's outputs on held-out samples, and runs one graph after the
other on them. It compares the input of a final Softmax instead of its output.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from deploykit.quantization.scoring import EngineComparison, Judgement
from deploykit.transforms.common.errors import CrashError, GraphError, LimitError, counts_differ
from deploykit.transforms.engines.engines import TENSORFLOW
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.child_process import Worker
from deploykit.verification.coverage import Answers
from deploykit.verification.samples import samples_in
from deploykit.verification.synthetic.sample_inputs import paired_inputs
from deploykit.verification.tolerance import (
    compared_outputs,
    compared_tensors,
    maker,
    paired_outputs,
)


class Evaluator:
    """Compares graphs with a float32 graph on samples; a context manager that ends its child.

    If a graph crashes the child or takes too long, the next graph runs in a new child.
    """

    def __init__(
        self,
        graph: Graph,
        feeds: Sequence[Mapping[str, Array]],
        labels: Array | None = None,
        metric: str = "top1",
        groups: Array | None = None,
    ) -> None:
        """Run the float32 graph.

        Args:
            graph: the reference.
            feeds: held-out samples, batch by batch, as `Dataset.feeds` returns them.
            labels: one per sample; without labels, only a user-defined metric is evaluated.
            metric: top1 or top5, the share of samples whose label is among the 1 or 5 highest
                scores of the first output; mae, the mean absolute error of the first output; or
                `module:function`, called with the outputs by name and the labels.
            groups: the group of each sample, strings.

        GraphError: TensorFlow cannot run the graph on the samples, or no output is floating-point.
        Also: the labels do not match the samples or classes, or the metric does not exist, raises,
        or does not return a number.
        """
        samples = samples_in(feeds)
        if not samples:
            raise GraphError("no-samples", purpose="compare on")
        if labels is not None and len(labels) != samples:
            raise counts_differ("labels", len(labels), samples)
        if labels is None and ":" not in metric:
            if metric != "top1":  # top1 is the default
                raise GraphError(
                    "metric-needs-labels", metric=metric, reason="the data contain none"
                )
            metric = ""
        self._graph = graph
        self._arguments = (
            b"".join(graph.serialized()),
            list(graph.outputs),
            compared_tensors(graph),
            list(feeds),
            labels,
            metric,
            groups,
        )
        self._worker: Worker | None = None
        self._start()

    def judge(self, graph: Graph, engine: str = TENSORFLOW) -> Judgement:
        """Run a graph in an engine, and compare it with the float32 graph.

        Inputs and outputs are paired by name or else by index.

        CrashError: the engine died. LimitError: it took too much time or memory. GraphError: the
        engine cannot run the graph, the inputs or outputs differ, or the metric raises.
        """
        judgement: Judgement = self._ask("score", graph, engine)
        return judgement

    def departs(self, graph: Graph, engine: str) -> bool:
        """Return whether the outputs of a graph in an engine differ from TensorFlow's.

        Errors are those of `judge`, for both runs.
        """
        besides: list[EngineComparison] = self._ask("departure", graph, engine)
        return any(beside.departs for beside in besides)

    def facts(self) -> tuple[float, bool]:
        """Return the run time of the float32 graph in seconds, and whether it ran on oneDNN."""
        seconds, onednn = (self._worker or self._start()).ask("facts")
        return seconds, onednn

    def answers(self) -> Answers | None:
        """Return the classes predicted in the float32 graph's first output; None: not classes."""
        made_by = maker(self._graph, self._graph.outputs[0]).op
        result: Answers | None = (self._worker or self._start()).ask("answers", made_by)
        return result

    def close(self) -> None:
        """End the child process."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def __enter__(self) -> "Evaluator":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _ask(self, question: str, graph: Graph, engine: str) -> Any:
        """Call a method of the child for a graph in an engine."""
        inputs = paired_inputs(self._graph, graph)
        if inputs is None or len(graph.outputs) != len(self._graph.outputs):
            raise GraphError("graph-interface-differs")
        paired = paired_outputs(self._graph, graph)
        judged = sorted(compared_outputs(self._graph, paired))
        message = (b"".join(graph.serialized()), inputs, dict(paired.pairs), judged, engine)
        worker = self._worker or self._start()
        try:
            return worker.ask(question, *message)
        except (CrashError, LimitError):
            self.close()
            raise

    def _start(self) -> Worker:
        self._worker = Worker("deploykit.quantization.scoring:Scorer", *self._arguments)
        try:
            self._worker.ask("facts")  # returns once the float32 graph has run
        except BaseException:  # an interrupt too must leave no child behind
            self.close()
            raise
        return self._worker
