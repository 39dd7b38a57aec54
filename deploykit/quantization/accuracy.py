"""How close graphs come to a float graph's answers: noise, agreement, and accuracy with labels.

A child process keeps the float graph's answers on held-out samples, and runs one graph after the
other on them. What a final Softmax reads is judged in its place.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from deploykit.quantization.scoring import Beside, Judgement
from deploykit.transforms.common.errors import CrashError, GraphError, LimitError, counts_differ
from deploykit.transforms.engines.engines import TENSORFLOW
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.child_process import Worker
from deploykit.verification.coverage import Answers
from deploykit.verification.samples import samples_in
from deploykit.verification.synthetic.sample_inputs import paired_inputs
from deploykit.verification.tolerance import compared_tensors, judged_outputs, maker, paired_outputs


class Judge:
    """A float graph and samples, by which graphs are judged; a context manager that ends its child.

    Where a graph kills the child or takes too long, the next one is judged in a new child.
    """

    def __init__(
        self,
        graph: Graph,
        feeds: Sequence[Mapping[str, Array]],
        labels: Array | None = None,
        metric: str = "top1",
        groups: Array | None = None,
    ) -> None:
        """Run the float graph.

        Args:
            graph: what is right.
            feeds: held-out samples, batch by batch, as `Dataset.feeds` returns them.
            labels: one for each sample; without, only a metric of the user's own is taken.
            metric: top1 or top5, the share of samples whose label is among so many highest scores
                of the first output; mae, the mean absolute error of the first output; or
                `module:function`, called with the outputs by name and the labels.
            groups: the group of each sample, texts.

        GraphError: TensorFlow cannot run the graph on them, no output holds floats, labels are not
        as many as samples or of no class, or the metric does not exist, raises, or is no number.
        """
        samples = samples_in(feeds)
        if not samples:
            raise GraphError("no-samples", purpose="judge by")
        if labels is not None and len(labels) != samples:
            raise counts_differ("labels", len(labels), samples)
        if labels is None and ":" not in metric:
            if metric != "top1":  # which nobody needs to have asked for
                raise GraphError(
                    "metric-needs-labels", metric=metric, reason="which the data do not hold"
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
        """Return how a graph compares that an engine computes.

        Its inputs and outputs are paired by name or else by place.

        CrashError: the engine died on it. LimitError: it took too much time or memory. GraphError:
        the engine cannot run it, its inputs or outputs are others, or the metric raises.
        """
        judgement: Judgement = self._ask("score", graph, engine)
        return judgement

    def departs(self, graph: Graph, engine: str) -> bool:
        """Say whether an engine computes something else of a graph than TensorFlow does.

        Errors are those of `judge`; GraphError as well: TensorFlow cannot run it.
        """
        besides: list[Beside] = self._ask("departure", graph, engine)
        return any(beside.departs for beside in besides)

    def facts(self) -> tuple[float, bool]:
        """Return the seconds that the float graph took, and whether it ran on oneDNN."""
        seconds, onednn = (self._worker or self._start()).ask("facts")
        return seconds, onednn

    def answers(self) -> Answers | None:
        """Return the classes that the first output of the float graph names, if it names any."""
        made_by = maker(self._graph, self._graph.outputs[0]).op
        result: Answers | None = (self._worker or self._start()).ask("answers", made_by)
        return result

    def close(self) -> None:
        """End the child."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def __enter__(self) -> "Judge":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _ask(self, question: str, graph: Graph, engine: str) -> Any:
        """Ask the child something of a graph in an engine."""
        inputs = paired_inputs(self._graph, graph)
        if inputs is None or len(graph.outputs) != len(self._graph.outputs):
            raise GraphError("graph-interface-differs")
        paired = paired_outputs(self._graph, graph)
        judged = sorted(judged_outputs(self._graph, paired))
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
            self._worker.ask("facts")  # which it has once the float graph has run
        except BaseException:  # an interrupt too must leave no child behind
            self.close()
            raise
        return self._worker
