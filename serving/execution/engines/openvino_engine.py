"""OpenVINO computes: the graph that lies beside a version for it, compiled once.

Signatures with the same inputs are one compiled graph with the outputs of all. It is compiled for
as many calls at once as there are slots, and once more for a call that has all slots to itself.
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
"""Takes a graph, the Placeholder that each input is fed to, the outputs, and the settings."""


class OpenVinoEngine:
    """Compiled graphs of a version, as `Engine` says."""

    name = OPENVINO
    any_shape = frozenset[str]()
    hands_over = True

    def __init__(self, content: EngineFolder, loading: Loading, make: Make = OpenVinoModel) -> None:
        """Let `make` compile what lies beside a version, or load it, as `KeptGraphs` does.

        GraphError: OpenVINO refuses it; and what `make` raises.
        """
        self.version = version_of(OPENVINO)
        self.spreads = loading.slots > 1
        self.needs_rows = not content.takes_empty
        self._signatures = dict(content.signatures)
        slots = max(loading.slots, 1)
        threads = slots * max(loading.intra_op, 0)  # 0: all cores
        precision = content.use.precision
        self._beside = _compiled(content, Compiling(threads, slots, precision), make)
        alone = Compiling(threads, 1, precision)
        self._alone = _compiled(content, alone, make) if self.spreads else self._beside

    @property
    def signatures(self) -> list[str]:
        """What it computes of the version."""
        return list(self._signatures)

    def signature(self, name: str) -> EngineSignature:
        """Return the tensors of what it computes."""
        return self._signatures[name]

    def compute(
        self,
        signature: str,
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        seconds: float | None,
        slot: int,
    ) -> dict[str, Array]:
        """As `Engine` says."""
        chosen = self._signatures[signature]
        graph = (self._alone if slot == ALL else self._beside)[signature]
        return graph.run(chosen, feeds, None if slot == HERE else seconds)

    def close(self) -> None:
        """Give all memory back. Nobody may be calling it any more."""
        self._beside, self._alone = {}, {}
        give_back()


class KeptGraphs:
    """The graphs of a version that were compiled at an earlier start on this machine, and tried."""

    def __init__(self, cache: CompiledCache, manifest: Path, loading: Loading) -> None:
        """Look for them in a cache, by all that decides how they are compiled and tried.

        The manifest has the SHA-256 of the graph and of the answers that it is compared with.
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
        """Load graphs within. KeyError: an earlier process ended while it loaded these."""
        with self._cache.loading(key_of(b"", self._facts)):
            yield

    def load(
        self, part: bytes, fed: Mapping[str, str], outputs: Sequence[str], compiling: Compiling
    ) -> OpenVinoModel:
        """Return a graph that is kept. KeyError: it is not. GraphError: OpenVINO refuses it."""
        key = self._key(part, outputs, compiling)
        if (value := self._cache.get(key)) is None:
            raise KeyError(key)
        return OpenVinoModel(part, fed, outputs, compiling, value)

    def compile(
        self, part: bytes, fed: Mapping[str, str], outputs: Sequence[str], compiling: Compiling
    ) -> OpenVinoModel:
        """Compile a graph that was tried, and keep it. GraphError: OpenVINO refuses it."""
        model = OpenVinoModel(part, fed, outputs, compiling)
        if self._cache.takes(len(part)):
            self._cache.put(self._key(part, outputs, compiling), model.compiled())
        return model

    def _key(self, part: bytes, outputs: Sequence[str], compiling: Compiling) -> str:
        return key_of(
            part, {**self._facts, "outputs": list(outputs), "compiling": asdict(compiling)}
        )


class _CompiledGraph:
    """What computes all signatures that have the same inputs."""

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
        """Return the outputs by alias. ServingError: it refuses the arrays, or time is over."""
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
    """Return what computes each signature."""
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
