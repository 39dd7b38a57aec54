"""Runs a signature in two engines: the model in one, its pre- and postprocessing in TensorFlow.

So a signature that decodes images or maps classes to names uses the engine that the version was
exported for. The inputs and outputs of the three subgraphs are tensors of the version's graph.
"""

import time
from collections.abc import Iterable, Mapping, Sequence

from deploykit.serving.execution.engines.engine import HERE
from deploykit.serving.execution.engines.openvino_engine import OpenVinoEngine
from deploykit.serving.execution.engines.tensorflow_engine import TensorFlowEngine
from deploykit.serving.execution.request_inputs import one_row, without_row
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.signatures import Signature, Tensor
from deploykit.transforms.engines.engine_manifest import EngineSignature, EngineTensor
from deploykit.transforms.engines.engine_session import is_cut
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import normal
from deploykit.transforms.ir.protos import MetaGraphDef
from deploykit.transforms.ir.tensors import Array, DType


def split_signatures(
    meta: MetaGraphDef, signatures: Mapping[str, Signature], models: Mapping[str, EngineSignature]
) -> dict[str, str]:
    """Return the signatures that contain a model an engine runs, with the model's name.

    Args:
        meta: the version.
        signatures: those that the engine does not run as a whole.
        models: the signatures that the engine runs, by name.
    """
    if not signatures or not models:
        return {}
    graph, result = Graph.from_graph_def(meta.graph_def), dict[str, str]()
    for name, signature in signatures.items():
        sides = [_names(side.values()) for side in (signature.inputs, signature.outputs)]
        for model, item in models.items():
            ends = [_names(side.values()) for side in (item.inputs, item.outputs)]
            if is_cut(graph, *sides, *ends):
                result[name] = model
                break
    return result


class SplitEngine:
    """Signatures of a version that contain a model; implements `Engine`."""

    any_shape = frozenset[str]()
    hands_over = True
    needs_rows = False  # an empty batch is padded before the model

    def __init__(
        self,
        signatures: Mapping[str, Signature],
        models: Mapping[str, str],
        inner: OpenVinoEngine,
        outer: TensorFlowEngine,
    ) -> None:
        """Combine both engines; `models` maps each signature to the inner engine's model."""
        self.name, self.version, self.spreads = inner.name, inner.version, inner.spreads
        self._inner, self._outer = inner, outer
        self._signatures = {name: signatures[name] for name in models}
        self._models = {name: (model, inner.signature(model)) for name, model in models.items()}

    def compute(
        self,
        signature: str,
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        seconds: float | None,
        slot: int,
    ) -> dict[str, Array]:
        """Implement `Engine.compute`."""
        chosen, (name, model) = self._signatures[signature], self._models[signature]
        end = None if slot == HERE or seconds is None else time.monotonic() + seconds

        def left() -> float | None:
            rest = None if end is None else end - time.monotonic()
            if rest is not None and rest <= 0:
                raise ServingError("DEADLINE_EXCEEDED", "deadline-during-run")
            return rest

        known = {normal(chosen.inputs[alias].name): array for alias, array in feeds.items()}
        expected = [name for name in _names(model.inputs.values()) if name not in known]
        if expected:
            values = self._outer.before(signature, feeds, expected, left(), slot)
            known |= dict(zip(expected, values, strict=True))
        given = {alias: known[normal(tensor.name)] for alias, tensor in model.inputs.items()}
        inputs = {alias: _tensor(item) for alias, item in model.inputs.items()}
        row = one_row(inputs, given) if self._inner.needs_rows else None
        result = self._inner.compute(name, row or given, list(model.outputs), left(), slot)
        if row is not None:
            ends = {alias: _tensor(item) for alias, item in model.outputs.items()}
            result = {alias: without_row(item, result[alias]) for alias, item in ends.items()}
        known = {normal(tensor.name): result[alias] for alias, tensor in model.outputs.items()}
        tensors = {alias: normal(chosen.outputs[alias].name) for alias in outputs}
        expected = [name for name in _names(chosen.outputs.values()) if name not in known]
        if any(tensor in expected for tensor in tensors.values()):
            values = self._outer.after(signature, known, expected, left(), slot)
            known |= dict(zip(expected, values, strict=True))
        return {alias: known[tensor] for alias, tensor in tensors.items()}

    def close(self) -> None:
        """Release all memory. No thread may use it any more."""
        self._outer.close()
        self._inner.close()


def _tensor(tensor: EngineTensor) -> Tensor:
    return Tensor(tensor.name, DType(tensor.dtype), tensor.shape)


def _names(tensors: Iterable[Tensor | EngineTensor]) -> list[str]:
    """Return the normalized names of tensors without duplicates."""
    return list(dict.fromkeys(normal(tensor.name) for tensor in tensors))
