"""A result must run in all settings that users have, and answer the same in each.

These are: oneDNN off and on, Grappler off and on, batch 1 and 3.
"""

import itertools

import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.child_process import call
from deploykit.transforms.runtime.differences import compare
from deploykit.verification.synthetic.sample_inputs import made_up_feeds

BATCHES = (1, 3)


def run_everywhere(
    *graphs: Graph, feeds: dict[str, np.ndarray] | None = None, tolerance: float = 1e-4
) -> None:
    """Run graphs with the same inputs in all settings and compare what they answer.

    Args:
        graphs: they have the same inputs, whose first axis is the batch.
        feeds: three samples or more; default: random ones.
        tolerance: bar on the largest relative difference. oneDNN, Grappler and larger batches sum
            in another order, which may move as much as folding batch norms may.
    """
    samples = feeds or _random(graphs[0])
    contents = [(b"".join(graph.serialized()), list(graph.outputs)) for graph in graphs]
    answers = [
        call("tests.real.everywhere:run_all", contents, samples, env={"TF_ENABLE_ONEDNN_OPTS": v})
        for v in ("0", "1")
    ]
    for of_graph in zip(*answers, strict=True):
        runs = [run for of_setting in of_graph for run in of_setting]
        assert len(runs) == 8
        for run, batch in zip(runs, itertools.cycle(BATCHES)):
            assert all(len(output) == batch for output in run)
            for difference in compare([first[:1] for first in runs[0]], [o[:1] for o in run]):
                assert difference.max_relative_error <= tolerance, difference


def _random(graph: Graph) -> dict[str, np.ndarray]:
    """Return random inputs of four samples."""
    feeds, reason = made_up_feeds(graph, (-1.0, 1.0))
    assert not reason, reason
    return {name: np.concatenate([each[name] for each in feeds]) for name in feeds[0]}


def run_all(
    graphs: list[tuple[bytes, list[str]]], feeds: dict[str, np.ndarray]
) -> list[list[list[np.ndarray]]]:
    """Run graphs with Grappler off and on and every batch size; this is done in a child process."""
    from deploykit.transforms.runtime.session import Session

    return [
        [
            session.run(outputs, {name: values[:batch] for name, values in feeds.items()})
            for session in (Session(content, grappler) for grappler in (False, True))
            for batch in BATCHES
        ]
        for content, outputs in graphs
    ]
