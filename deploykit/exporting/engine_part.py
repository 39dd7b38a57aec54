"""The part of a version that OpenVINO runs, compared with TensorFlow before it is written."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated, Any

import numpy as np

from deploykit.exporting.named_model import NamedModel
from deploykit.importers.metadata_file import about
from deploykit.pipelines.int8 import onednn_graph
from deploykit.serving.protocol.signatures import Tensor, tensors_of
from deploykit.transforms.common.documents import Hidden, Written, written
from deploykit.transforms.common.errors import Error, GraphError, UnverifiedError, VerificationError
from deploykit.transforms.engines.engine_folder import MAX_ANSWERS
from deploykit.transforms.engines.engine_manifest import (
    EngineAnswer,
    EngineFolder,
    EngineSignature,
    EngineTensor,
    check_parts,
)
from deploykit.transforms.engines.engine_session import MODEL, is_cut
from deploykit.transforms.engines.engines import (
    AUTO,
    OPENVINO,
    TENSORFLOW,
    EngineUse,
    check_engine,
    lacking,
    version_of,
)
from deploykit.transforms.engines.openvino_model import Compiling
from deploykit.transforms.int8.stored_codes import holds_codes
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import normal, producer_name
from deploykit.transforms.ir.ops import FEEDABLE_OPS
from deploykit.transforms.ir.protos import SignatureDef
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.differences import CODES_BAR
from deploykit.verification.engine_check import EngineCheck, compared_in
from deploykit.verification.engine_feeds import (
    EngineCase,
    differs_when_split,
    made_up_range,
)
from deploykit.verification.verify import verify

logger = logging.getLogger("deploykit")

_MOST = 8  # samples to compare


@dataclass(frozen=True)
class EnginePart:
    """The part of a version that OpenVINO runs, or why TensorFlow runs all of it."""

    content: Hidden[EngineFolder | None] = None
    why: str = ""
    """The reason why OpenVINO does not run it, if OpenVINO was considered."""
    notes: Annotated[Sequence[str], Written("not_compared")] = ()
    """Batch sizes that were not compared, with the reasons."""
    split: Annotated[Sequence[str], Written(by=sorted)] = ()
    """Signatures whose pre- and postprocessing runs in TensorFlow."""

    @property
    @written(flat=True)
    def _engine(self) -> dict[str, Any]:
        use = self.content and self.content.use
        return {
            "name": use.engine if use else TENSORFLOW,
            "version": use and use.version,
            "precision": use and use.precision,
            "left_to_tensorflow": self.content.left if self.content else {},
        }

    @property
    @written()
    def signatures(self) -> list[str]:
        """Names of the signatures whose model OpenVINO runs, sorted."""
        own = () if self.content is None else self.content.signatures
        return sorted({*own, *self.split} - {MODEL})

    def lines(self) -> list[str]:
        """Return a text with one line per engine and its signatures."""
        if self.content is None:
            return [f"TensorFlow runs it: {self.why}"] if self.why else []
        use = self.content.use
        results = [
            f"OpenVINO {use.version} runs {', '.join(self.signatures)}, with TensorFlow's outputs"
        ]
        if self.split:
            names = ", ".join(sorted(self.split))
            results.append(f"TensorFlow runs the pre- and postprocessing of {names}")
        left = self.content.left.items()
        results += [f"TensorFlow runs {name} alone: {why}" for name, why in left]
        return [*results, *(f"not compared at {note}" for note in self.notes)]


def in_tensorflow(callee: NamedModel) -> NamedModel:
    """Return the fast form for TensorFlow: oneDNN int8 ops if the graph stores int8 codes.

    VerificationError: the outputs of that form differ from those of the codes.
    """
    if not holds_codes(callee.graph):
        return callee
    made = onednn_graph(callee.graph)
    result = verify(
        callee.graph, made, input_range=made_up_range(callee.graph), min_sqnr=CODES_BAR.min_sqnr
    )
    if not result.passed:
        kind = VerificationError if result.verified else UnverifiedError
        raise kind("onednn-form-differs", reason=result.reason)
    others = tuple(replace(other, graph=made) for other in callee.others)
    return replace(callee, graph=made, others=others)


def engine_part(
    requested: str | None,
    callee: NamedModel,
    signatures: Mapping[str, SignatureDef],
    samples: Mapping[str, Array] | None = None,
    version: Graph | None = None,
) -> EnginePart:
    """Compare the requested engine with TensorFlow, and return the part that it runs.

    Args:
        requested: the engine, or `auto`; None: the engine that the graph was verified with.
        callee: the model that the engine converts.
        signatures: the signatures of the version.
        samples: arrays by alias of the model's inputs; default: synthetic values.
        version: the graph of the version, including pre- and postprocessing; default: the
            model's.

    GraphError: the requested engine is not available here, or refuses the graph.
    VerificationError: its outputs differ from TensorFlow's.
    """
    use = about(callee.graph).engine
    expected = requested or (AUTO if use is not None and use.engine == OPENVINO else TENSORFLOW)
    if expected == TENSORFLOW:
        return EnginePart()
    if expected == OPENVINO:
        check_engine(OPENVINO)
    if why := lacking(OPENVINO):
        return _tensorflow(f"OpenVINO was not compared here, as {why}")
    use = replace(use or EngineUse(OPENVINO, ""), engine=OPENVINO, version=version_of(OPENVINO))
    try:
        return _compared(use, callee, signatures, samples, version or callee.graph)
    except Error as error:
        if expected == OPENVINO:
            raise
        return _tensorflow(str(error))


def samples_of(feeds: Any, most: int = _MOST) -> dict[str, Array]:
    """Concatenate the first feeds, one sample each, to arrays [samples, ...] by alias."""
    results = [{name.removesuffix(":0"): array for name, array in feed.items()}
             for feed in islice(feeds, most)]  # fmt: skip
    return {
        alias: np.concatenate([np.asarray(result[alias]) for result in results])
        if np.ndim(results[0][alias])
        else np.asarray(results[0][alias])
        for alias in (results[0] if results else ())
    }


def _tensorflow(why: str) -> EnginePart:
    logger.warning("TensorFlow runs it: %s", why)
    return EnginePart(why=why)


def _compared(
    use: EngineUse,
    callee: NamedModel,
    signatures: Mapping[str, SignatureDef],
    samples: Mapping[str, Array] | None,
    version: Graph,
) -> EnginePart:
    """Return the part that OpenVINO runs; it raises the errors of `engine_part`."""
    left, used = dict[str, str](), dict[str, EngineSignature]()
    for name, signature in sorted(signatures.items()):
        sides = [tensors_of(side) for side in (signature.inputs, signature.outputs)]
        if why := _why_not(callee.graph, *sides):
            left[name] = why
        else:
            used[name] = EngineSignature(*({a: _ours(t) for a, t in s.items()} for s in sides))
    models = _models(version, {name: signatures[name] for name in left}, used, callee)
    if MODEL in models.values():
        used[MODEL] = _model_of(callee)
    checks, retained = dict[str, EngineCheck](), dict[str, EngineSignature]()
    own = {normal(t.name): alias for alias, t in callee.inputs.items()}
    for names in _alike(used):
        graph = _part(callee.graph, [used[name] for name in names])
        data = None
        if samples and set(graph.inputs) <= own.keys():
            data = {
                tensor: samples[own[tensor]] for tensor in graph.inputs if own[tensor] in samples
            }
        check = compared_in(graph, Compiling(precision=use.precision), data=data or None)
        if check.refused:
            left |= {name: check.refused for name in names if name != MODEL}
            left |= {name: check.refused for name, model in models.items() if model in names}
            continue
        check.require()
        checks |= dict.fromkeys(names, check)
        retained |= {name: used[name] for name in names}
    if not retained:
        reasons = [f"{name}: {why}" for name, why in left.items()]
        raise GraphError("openvino-no-signature", reasons=reasons)
    split = {name: model for name, model in models.items() if model in retained}
    for name, model in split.items():
        ends = [[t.name for t in retained[model].outputs.values()],
                [t.name for t in signatures[name].outputs.values()]]  # fmt: skip
        if why := differs_when_split(version, checks[model].cases, *ends):
            raise VerificationError("signature-not-splittable", name=name, reason=why)
        del left[name]
    return replace(_part_of(use, callee.graph, retained, checks, left), split=tuple(split))


def _models(
    version: Graph,
    signatures: Mapping[str, SignatureDef],
    used: Mapping[str, EngineSignature],
    callee: NamedModel,
) -> dict[str, str]:
    """Return, by signature, the model within it: another signature or `MODEL`."""
    result, known = dict[str, str](), dict(used)
    if not _why_not(callee.graph, callee.inputs, callee.outputs):
        known[MODEL] = _model_of(callee)
    for name, signature in signatures.items():
        sides = [[t.name for t in side.values()] for side in (signature.inputs, signature.outputs)]
        for model, item in known.items():
            ends = [[t.name for t in side.values()] for side in (item.inputs, item.outputs)]
            if is_cut(version, *sides, *ends):
                result[name] = model
                break
    return result


def _model_of(callee: NamedModel) -> EngineSignature:
    """Return the model itself as a signature."""
    sides = callee.inputs, callee.outputs
    return EngineSignature(*({alias: _ours(t) for alias, t in side.items()} for side in sides))


def _part_of(
    use: EngineUse,
    graph: Graph,
    signatures: Mapping[str, EngineSignature],
    checks: Mapping[str, EngineCheck],
    left: Mapping[str, str],
) -> EnginePart:
    part = _part(graph, list(signatures.values()))
    answers = [
        EngineAnswer(
            name,
            case.batch,
            {alias: case.feeds[normal(t.name)] for alias, t in item.inputs.items()},
            {alias: np.asarray(case.expected[normal(t.name)]) for alias, t in item.outputs.items()},
        )
        for name, item in signatures.items()
        for case in _kept(checks[name].cases, len(signatures))
    ]
    bars = {
        name: {alias: checks[name].bars[normal(t.name)] for alias, t in item.outputs.items()}
        for name, item in signatures.items()
    }
    takes_empty = all(check.takes_empty for check in checks.values())
    content = EngineFolder(
        use, b"".join(part.serialized()), signatures, answers, bars, left, takes_empty
    )
    check_parts(content, part.to_graph_def())
    notes = dict.fromkeys(note for check in checks.values() for note in check.left_out)
    return EnginePart(content, notes=tuple(notes))


def _kept(cases: Sequence[EngineCase], signatures: int) -> Sequence[EngineCase]:
    """Return the cases that fit the server's size limit; GraphError: none does."""
    most, retained = MAX_ANSWERS // (2 * signatures), list[EngineCase]()
    for case in sorted(cases, key=_bytes):
        if _bytes(case) <= most:
            most -= _bytes(case)
            retained.append(case)
    if not any(case.batch for case in retained):
        raise GraphError("engine-answers-too-large", bytes=_bytes(cases[0]))
    return sorted(retained, key=lambda case: -case.batch)


def _bytes(case: EngineCase) -> int:
    arrays = (*case.feeds.values(), *case.expected.values())
    return sum(np.asarray(array).nbytes for array in arrays)


def _why_not(graph: Graph, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> str:
    """Return why an engine cannot run a signature, or an empty string."""
    for kind, tensors in (("input", inputs), ("output", outputs)):
        for alias, tensor in tensors.items():
            if tensor.dtype in ("string", "resource", "variant"):
                return f"its {kind} '{alias}' has dtype {tensor.dtype}"
            name = producer_name(tensor.name)
            if name not in graph or (kind == "input" and graph[name].op not in FEEDABLE_OPS):
                return f"its {kind} '{alias}' is not part of the model"
    return ""


def _alike(signatures: Mapping[str, EngineSignature]) -> list[list[str]]:
    """Group the names of signatures with the same inputs, which a server runs as one graph."""
    names: dict[frozenset[str], list[str]] = {}
    for name, item in signatures.items():
        fed = frozenset(tensor.name for tensor in item.inputs.values())
        names.setdefault(fed, []).append(name)
    return list(names.values())


def _part(graph: Graph, signatures: Sequence[EngineSignature]) -> Graph:
    """Return the subgraph that signatures need."""
    part = graph.copy()
    sides = [
        dict.fromkeys(
            normal(t.name) for signature in signatures for t in getattr(signature, side).values()
        )
        for side in ("inputs", "outputs")
    ]
    part.inputs, part.outputs = sides
    part.prune()
    return part


def _ours(tensor: Tensor) -> EngineTensor:
    return EngineTensor(tensor.name, str(tensor.dtype), tensor.shape)
