"""Proof that a signature gives the same outputs where its model is run apart from the rest."""

from collections.abc import Sequence
from contextlib import closing

import numpy as np

from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import normal
from deploykit.transforms.core.running.child import Worker
from deploykit.transforms.core.tensors import Array
from deploykit.verification.engines.engine_cases import EngineCase


def differs_when_split(
    graph: Graph, cases: Sequence[EngineCase], model: Sequence[str], outputs: Sequence[str]
) -> str:
    """Return where TensorFlow's own outputs change once the model's are fed, or an empty string.

    They have to be the same to the last bit; then another engine may run the model.

    Args:
        graph: the model with its pre- and postprocessing.
        cases: what the model is fed.
        model: the tensors that the model gives.
        outputs: the tensors that the signature gives.

    GraphError: TensorFlow cannot run the graph on them.
    """
    model, outputs = [normal(each) for each in model], [normal(each) for each in outputs]
    every = list(dict.fromkeys([*model, *outputs]))
    behind = [each for each in every if each not in model]
    if not behind:
        return ""
    content = b"".join(graph.serialized())
    session = "deploykit.transforms.core.running.session:Session"
    with closing(Worker(session, content, runs="TensorFlow")) as worker:
        for case in (each for each in cases if each.batch):
            whole = dict(zip(every, worker.ask("run", every, dict(case.feeds)), strict=True))
            given = {name: whole[name] for name in model}
            found: list[Array] = worker.ask("run", behind, given)
            for name, array in zip(behind, found, strict=True):
                floats = array.dtype.kind in "fc"
                if not np.array_equal(array, whole[name], equal_nan=floats):
                    return f"'{name}' at batch {case.batch} depends on more than the model's output"
    return ""
