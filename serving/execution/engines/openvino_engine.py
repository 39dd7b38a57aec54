"""The OpenVINO engine: runs the graph that was exported for it next to a version.

Signatures with the same inputs share one compiled graph with the outputs of all. It is compiled
once for as many concurrent requests as there are slots, and once for one request in all slots.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from deploykit import __version__
from deploykit.serving.execution.engines.engine import ALL, HERE, Deadline, Loading
from deploykit.serving.protocol.errors import ServingError
from deploykit.transforms.common.errors import GraphError, lacks_memory
from deploykit.transforms.engines.compiled_cache import CompiledCache, key_of
from deploykit.transforms.engines.engine_manifest import EngineFolder, EngineSignature
from deploykit.transforms.engines.engine_session import cut
from deploykit.transforms.engines.engines import OPENVINO, version_of
from deploykit.transforms.engines.openvino_model import Compiling, OpenVinoModel, imported
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.memory import give_back
from deploykit.transforms.untrusted.files import sha256_of

Make = Callable[[bytes, Mapping[str, str], Sequence[str], Compiling], OpenVinoModel]
"""Takes a graph, the Placeholder of each input, the outputs, and the compile options."""


class OpenVinoEngine:
    """The compiled graphs of a version; implements `Engine`."""

    name = OPENVINO
    any_shape = frozenset[str]()
    hands_over = True

    def __init__(self, content: EngineFolder, loading: Loading, make: Make = OpenVinoModel) -> None:
        """Compile the graphs with `make`, which may also load them as `CachedGraphs` does.

        GraphError: OpenVINO rejects a graph. `make` may raise further errors.
        """
        self.version = version_of(OPENVINO)
        self.spreads = loading.slots > 1
        self.needs_rows = not content.takes_empty
        self._signatures = dict(content.signatures)
        slots = max(loading.slots, 1)
        threads = slots * max(loading.intra_op, 0)  # 0: one per core
        precision = content.use.precision
        self._beside = _compiled(content, Compiling(threads, slots, precision), make)
        alone = Compiling(threads, 1, precision)
        self._alone = _compiled(content, alone, make) if self.spreads else self._beside

    @property
    def signatures(self) -> list[str]:
        """The names of the signatures that it runs."""
        return list(self._signatures)

    def signature(self, name: str) -> EngineSignature:
        """Return the input and output tensors of a signature."""
        return self._signatures[name]

    def compute(
        self,
        signature: str,
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        seconds: float | None,
        slot: int,
    ) -> dict[str, Array]:
        """Implement `Engine.compute`."""
        chosen = self._signatures[signature]
        graph = (self._alone if slot == ALL else self._beside)[signature]
        return graph.run(chosen, feeds, None if slot == HERE else seconds)

    def close(self) -> None:
        """Release all memory. No thread may use it any more."""
        self._beside, self._alone = {}, {}
        give_back()


class CachedGraphs:
    """A cache of the compiled graphs that an earlier start on this machine has tried."""

    def __init__(self, cache: CompiledCache, manifest: Path, loading: Loading) -> None:
        """Select the cache entries by everything that affects compilation and trial.

        The manifest contains the SHA-256 of the graph and of the reference outputs.
        """
        self._cache = cache
        self._facts = {
            "openvino": imported().get_version(),
            "deploykit": __version__,
            "allow_ops": sorted(loading.allow_ops),
            "manifest": sha256_of(manifest),
        }

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Load graphs within the block. KeyError: an earlier process crashed on loading them."""
        with self._cache.loading(key_of(b"", self._facts)):
            yield

    def load(
        self, part: bytes, fed: Mapping[str, str], outputs: Sequence[str], compiling: Compiling
    ) -> OpenVinoModel:
        """Return a cached graph. KeyError: it is not cached. GraphError: OpenVINO rejects it."""
        key = self._key(part, outputs, compiling)
        if (value := self._cache.get(key)) is None:
            raise KeyError(key)
        return OpenVinoModel(part, fed, outputs, compiling, value)

    def compile(
        self, part: bytes, fed: Mapping[str, str], outputs: Sequence[str], compiling: Compiling
    ) -> OpenVinoModel:
        """Compile a graph that was tried, and cache it. GraphError: OpenVINO rejects it."""
        model = OpenVinoModel(part, fed, outputs, compiling)
        if self._cache.takes(len(part)):
            self._cache.put(self._key(part, outputs, compiling), model.compiled())
        return model

    def _key(self, part: bytes, outputs: Sequence[str], compiling: Compiling) -> str:
        return key_of(
            part, {**self._facts, "outputs": list(outputs), "compiling": asdict(compiling)}
        )


class _CompiledGraph:
    """A compiled graph for all signatures with the same inputs."""

    def __init__(
        self,
        graph_def: GraphDef,
        signatures: Sequence[EngineSignature],
        compiling: Compiling,
        make: Make,
    ) -> None:
        ranks = {}
        for input_ in signatures[0].inputs.values():
            if input_.shape is None:
                raise GraphError("openvino-unknown-rank", name=input_.name)
            ranks[input_.name] = input_.dtype, len(input_.shape)
        outputs = {tensor.name for signature in signatures for tensor in signature.outputs.values()}
        self._outputs = {name: place for place, name in enumerate(sorted(outputs))}
        part, fed = cut(graph_def, ranks, list(self._outputs))
        self._model = make(part, fed, list(self._outputs), compiling)

    def run(
        self, signature: EngineSignature, feeds: Mapping[str, Array], seconds: float | None
    ) -> dict[str, Array]:
        """Return outputs by alias. ServingError: arrays are rejected, or the deadline passes."""
        arrays = {signature.inputs[alias].name: array for alias, array in feeds.items()}
        deadline = Deadline(seconds)
        try:
            result = self._model.run(arrays, None if seconds is None else deadline.watch)
        except GraphError as error:
            if deadline.over:
                raise ServingError("DEADLINE_EXCEEDED", "deadline-during-run") from None
            code = "RESOURCE_EXHAUSTED" if lacks_memory(error) else "INVALID_ARGUMENT"
            raise ServingError.of(code, error) from None
        return {
            alias: result[self._outputs[tensor.name]] for alias, tensor in signature.outputs.items()
        }


def _compiled(content: EngineFolder, compiling: Compiling, make: Make) -> dict[str, _CompiledGraph]:
    """Return the compiled graph of each signature."""
    alike: dict[frozenset[str], list[str]] = {}
    for name, signature in content.signatures.items():
        fed = frozenset(tensor.name for tensor in signature.inputs.values())
        alike.setdefault(fed, []).append(name)
    graph_def, result = GraphDef.FromString(content.graph_def), dict[str, _CompiledGraph]()
    for names in alike.values():
        signatures = [content.signatures[name] for name in names]
        graph = _CompiledGraph(graph_def, signatures, compiling, make)
        result |= dict.fromkeys(names, graph)
    return result
