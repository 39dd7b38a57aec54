"""What a test of a defect asks of the original's answer, and of what deploykit makes of it."""

from collections.abc import Callable

from deploykit.transforms.common.errors import Error, GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.child_process import call
from tests.differential.graphs import feeds
from tests.differential.original import Answer
from tests.support import assert_error, error, ops, run

Shown = Callable[[Graph, Answer], bool]  # of the graph before and the original's answer
Right = Callable[[Graph, Graph | Error], bool]  # of the graph before and deploykit's


def aborts(text: str) -> Shown:
    """Ask for a process that died of a failed check, whose message holds `text`."""
    return lambda before, answer: answer.signal == "SIGABRT" and text in answer.error


def hangs(before: Graph, answer: Answer) -> bool:
    """Ask for a process that did not end."""
    return answer.timed_out


def fails(text: str) -> Shown:
    """Ask for an error message that holds `text`."""
    return lambda before, answer: text in answer.error and not answer.signal


def is_wrong(before: Graph, answer: Answer) -> bool:
    """Ask for a graph that computes something else: 1 % of the largest value, or NaN."""
    return error(before, answer.graph(before), feeds(before)) > 0.01


def does_not_run(text: str) -> Shown:
    """Ask for a graph that TensorFlow refuses, with a message that holds `text`."""

    def shown(before: Graph, answer: Answer) -> bool:
        try:
            run(answer.graph(before), feeds(before))
        except GraphError as refusal:
            return text in str(refusal)
        return False

    return shown


def does_not_run_in_onednn(before: Graph, answer: Answer) -> bool:
    """Say whether TensorFlow refuses the graph where it computes with oneDNN, as on most CPUs."""
    graph = answer.graph(before)
    for name, value in feeds(before).items():
        graph.replace(graph[name], graph[name].constant(name, value))
    content, outputs = b"".join(graph.serialized()), list(graph.outputs)
    found = call(
        "deploykit.transforms.runtime.session:run_each",
        content,
        outputs,
        forced={"TF_ENABLE_ONEDNN_OPTS": "1"},
    )
    return not set(outputs) <= found.keys()


def leaves(**counts: int) -> Shown:
    """Ask for a graph in which so many nodes of these ops are left."""
    return lambda before, answer: _has(answer.graph(before), counts)


def makes(holds: Callable[[Graph, Graph], bool]) -> Shown:
    """Ask for a graph of which, beside the graph before, something holds."""
    return lambda before, answer: holds(before, answer.graph(before))


def keeps(tolerance: float = 0.0, **counts: int) -> Right:
    """Ask for the same numbers, and for so many nodes of these ops."""

    def right(before: Graph, ours: Graph | Error) -> bool:
        return (
            isinstance(ours, Graph)
            and _has(ours, counts)
            and error(before, ours, feeds(before)) <= tolerance
        )

    return right


def stays(**counts: int) -> Right:
    """Ask for the same numbers, for so many nodes of these ops, and for a reason given."""
    right = keeps(**counts)
    return lambda before, ours: (
        isinstance(ours, Graph) and bool(ours.skipped) and right(before, ours)
    )


def refuses(code: str, /, **fields: object) -> Right:
    """Ask for an error with a code, and with at least these fields."""

    def refused(before: Graph, ours: Graph | Error) -> bool:
        assert isinstance(ours, Error), "it is not refused"
        assert_error(ours, code, **fields)
        return True

    return refused


def gives(holds: Callable[[Graph, Graph], bool]) -> Right:
    """Ask for a graph of which, beside the graph before, something holds."""
    return lambda before, ours: isinstance(ours, Graph) and holds(before, ours)


def _has(graph: Graph, counts: dict[str, int]) -> bool:
    found = ops(graph)
    return all(found.get(op, 0) == count for op, count in counts.items())
