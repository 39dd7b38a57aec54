"""The whole way to an 8-bit graph that is faster and still right, or to the float graph.

Shift and calibrate; rank layers by their noise and turn the noisiest back to float until the
answers hold; turn back what is no faster; then compare the two graphs end to end.
"""

import contextlib
import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deploykit.benchmarking.settings import Settings
from deploykit.machine import environment, machine
from deploykit.quantization.building import int8_graph
from deploykit.quantization.calibration import (
    calibrate,
    calibration_feeds,
    labelled_feeds,
    samples_in,
    split_samples,
    spread_samples,
)
from deploykit.quantization.holding import MAX_DROP, MIN_SQNR_DB, choose_layers
from deploykit.quantization.judging import Judge, Judgement
from deploykit.quantization.layer_times import Times, layer_times
from deploykit.quantization.outcome import LayerOutcome, Outcome
from deploykit.quantization.sensitivity import JUDGED, Noise, rank
from deploykit.quantization.speed import FEWER, INT8, choose, faster
from deploykit.state import State
from deploykit.verification import QUANTIZED_BAR_DB
from transforms.core.errors import GraphError, VerificationError
from transforms.core.graph import Graph
from transforms.core.int8_plan import Plan, plan
from transforms.core.layers import LAYER_OPS
from transforms.core.private_ops import probe
from transforms.core.processor import sums_exactly
from transforms.core.ranges import Ranges, load_ranges
from transforms.core.tensors import Array
from transforms.quantize_static import OPS
from transforms.shift_activations import shift_activations

logger = logging.getLogger("deploykit")

MINUTES = 4.0
STEPS = ("calibrate", "rank", "judge", "time", "compare")

Advance = Callable[[str, int], None]


@dataclass(frozen=True)
class Wanted:
    """What an 8-bit graph has to be."""

    isa: str = "auto"
    keep_float: tuple[str, ...] = ()
    min_sqnr: float = MIN_SQNR_DB
    """Signal to quantization noise of the outputs on held-out samples, in dB."""
    metric: str = "top1"
    max_drop: float = MAX_DROP
    """How much the metric may fall on the evaluation data, in its own unit."""
    settings: Settings = field(default_factory=Settings)
    """The batch and the threads for which it is to be fast."""
    minutes: float = MINUTES
    """How long the search may take; what is started then is finished."""


def quantize_calibrated(
    graph: Graph,
    data: Mapping[str, Array],
    wanted: Wanted = Wanted(),
    *,
    evaluation: Mapping[str, Array] | None = None,
    state: str | os.PathLike[str] | None = None,
    advance: Advance = lambda name, count: None,
) -> Outcome:
    """Return the optimized graph in 8 bits, as far as that is right and fast, or in float.

    Args:
        graph: an optimized float graph.
        data: arrays by input name that are like those of real use; 64 samples or more. Every fourth
            is held out to judge by.
        wanted: the bars, and what it runs on.
        evaluation: arrays by input name and `labels`, by which the metric is taken.
        state: a file that keeps what takes long while this runs, and from which it goes on when it
            was interrupted; it is removed at the end.
        advance: called with what comes next, and how many steps there are.

    GraphError: the data do not fit, an activation holds NaN or Inf, the metric fails, or the graph
    is in 8 bits already. VerificationError: the 8-bit graph keeps less than 15 dB.
    """
    refuse_quantized(graph)
    return _Work(graph, data, wanted, evaluation, state, advance).run()


def refuse_quantized(graph: Graph) -> None:
    """Raise GraphError where a graph computes in 8 bits already."""
    found = next((node for node in graph if node.op in _EIGHT_BIT_OPS), None)
    if found is not None:
        raise GraphError(
            f"the graph is quantized already (node '{found.name}' is a {found.op}); give the float "
            "model"
        )


_EIGHT_BIT_OPS = frozenset({*OPS.values(), "Dequantize", "QuantizeV2", "QuantizedConv2D",
                            "QuantizedMatMul", "Requantize"})  # fmt: skip


class _Work:
    """The steps, each of which leaves what the next ones need."""

    def __init__(
        self,
        graph: Graph,
        data: Mapping[str, Array],
        wanted: Wanted,
        evaluation: Mapping[str, Array] | None,
        state: str | os.PathLike[str] | None,
        advance: Advance,
    ) -> None:
        self._graph = graph
        self._wanted = wanted
        self._advance = advance
        self._began = time.monotonic()
        self._seconds: dict[str, float] = {}
        self._steps = 0
        data = {name: array for name, array in data.items() if name != "labels"}
        self._calibrating, self._held_out, note = split_samples(graph, data)
        self._notes = [note] if note else []
        self._evaluation = evaluation
        asked = {
            "graph": _digest(graph.serialized()),
            "data": _digest(_pieces(data)),
            "isa": wanted.isa,
            "keep_float": wanted.keep_float,
            "environment": environment(),
            **{name: machine()[name] for name in ("cpu", "flags")},
        }
        self._state = State(state, "quantizing", asked)

    def run(self) -> Outcome:
        missing = set(OPS.values()) - probe(OPS.values())
        if missing:
            return self._float(f"this TensorFlow lacks {', '.join(sorted(missing))}")
        with tempfile.TemporaryDirectory(prefix="deploykit-") as folder, self._explained():
            path = str(Path(folder, "ranges.json"))
            with self._timed("calibrate"):
                shifted = self._calibrate(path)
            found = plan(shifted, load_ranges(path), self._wanted.keep_float)
            if not found.chains:
                layers = self._layers(
                    shifted, found, load_ranges(path), [], None, frozenset(), frozenset()
                )
                return self._float("no layer can compute in 8 bits", layers)
            outcome = self._search(shifted, found, path)
        self._state.forget()
        return outcome

    def _calibrate(self, path: str) -> Graph:
        """Shift activations, write the ranges of the graph that comes of it, and return it."""
        feeds = calibration_feeds(self._graph, self._calibrating)

        def ranges(name: str, graph: Graph) -> None:
            if name not in self._state.found:
                found = calibrate(graph, feeds, advance=self._step("calibrate"))
                self._notes += found.notes
                self._state.keep(name, found.ranges.text())
            Path(path).write_text(self._state.found[name])

        ranges("ranges before shifting", self._graph)
        shifted = self._graph.copy()
        with contextlib.suppress(GraphError):  # where there is nothing to shift
            shift_activations(shifted, ranges=path)
        shifted.prune()
        ranges("ranges", shifted)
        return shifted

    def _search(self, graph: Graph, found: Plan, path: str) -> Outcome:
        def build(keep_float: tuple[str, ...]) -> Graph:
            return int8_graph(graph, path, isa, (*self._wanted.keep_float, *keep_float))

        def layers(
            noisy: frozenset[str], kept: frozenset[str], times: Times | None = None
        ) -> tuple[LayerOutcome, ...]:
            return self._layers(graph, found, load_ranges(path), ranking, times, noisy, kept)

        isa = self._wanted.isa
        with self._timed("rank"):
            ranking = self._rank(graph, path)
        held_out = calibration_feeds(self._graph, self._held_out)
        with contextlib.ExitStack() as stack:
            judge = stack.enter_context(Judge(self._graph, held_out))
            by_labels = self._judge_by_labels(stack)
            evaluations: dict[tuple[str, ...], Judgement] = {}

            def judged(keep_float: tuple[str, ...]) -> Judgement:
                self._advance(f"judge with {len(keep_float)} layers more in float", 0)
                int8 = build(keep_float)
                noise = judge.judge(int8)
                if by_labels is None:
                    return noise
                evaluations[keep_float] = by_labels.judge(int8)
                return replace(
                    noise,
                    metric=evaluations[keep_float].metric,
                    before=evaluations[keep_float].before,
                    after=evaluations[keep_float].after,
                )

            with self._timed("judge"):
                chosen = choose_layers(
                    [noise.layer for noise in ranking],
                    judged,
                    min_sqnr=self._wanted.min_sqnr,
                    max_drop=self._wanted.max_drop,
                    out_of_time=self._out_of_time,
                )
            noisy = frozenset(chosen.keep_float)
            if len(noisy) == len(found.chains):
                return self._float(
                    f"only with all layers in float the answers keep {self._wanted.min_sqnr:g} dB "
                    f"and lose no more than {self._wanted.max_drop:g} of the metric",
                    layers(noisy, noisy),
                )
            with self._timed("time"):
                times = layer_times(
                    graph,
                    build(()),
                    found,
                    self._wanted.settings,
                    data=self._held_out,
                    advance=self._step("time"),
                )
            slow = choose(graph, found, times, noisy).stay_float
            kept = {INT8: noisy, FEWER: slow}
            if len(slow) in (len(noisy), len(found.chains)):
                del kept[FEWER]
            with self._timed("compare"):
                gain = faster(
                    self._graph,
                    {name: build(tuple(floats)) for name, floats in kept.items()},
                    times.onednn_is_on,
                    self._wanted.settings,
                    data=self._held_out,
                    advance=self._step("compare"),
                )
            with self._timed("judge the result"):
                int8 = build(tuple(kept[gain.name]))
                judgement = judge.judge(int8)
                evaluation = by_labels.judge(int8) if by_labels is not None else None
        if judgement.sqnr_db < QUANTIZED_BAR_DB:
            raise VerificationError(
                f"in 8 bits the answers keep {judgement.sqnr_db:.1f} dB on held-out samples, below "
                f"{QUANTIZED_BAR_DB:g} dB; nothing was written (a higher --min-sqnr keeps more "
                "layers float)"
            )
        return Outcome(
            graph=int8 if gain.is_kept else self._graph,
            is_float=not gain.is_kept,
            reason=str(gain),
            layers=layers(noisy, kept[gain.name], times),
            judgement=judgement,
            evaluation=evaluation,
            gain=gain,
            **self._facts(),
        )

    def _rank(self, graph: Graph, path: str) -> list[Noise]:
        known = {name: Noise(**each) for name, each in self._state.found.get("noise", {}).items()}

        def keep(noise: Noise) -> None:
            known[noise.layer] = noise
            self._state.keep("noise", {name: vars(each) for name, each in known.items()})

        feeds = calibration_feeds(self._graph, spread_samples(self._graph, self._held_out, JUDGED))
        with Judge(self._graph, feeds) as judge:
            return rank(
                graph,
                path,
                judge.judge,
                isa=self._wanted.isa,
                keep_float=self._wanted.keep_float,
                known=known,
                on_result=keep,
                advance=self._step("rank"),
            )

    def _judge_by_labels(self, stack: contextlib.ExitStack) -> Judge | None:
        if self._evaluation is None:
            return None
        feeds, labels = labelled_feeds(self._graph, self._evaluation)
        return stack.enter_context(Judge(self._graph, feeds, labels, self._wanted.metric))

    def _layers(
        self,
        graph: Graph,
        found: Plan,
        ranges: Ranges,
        ranking: list[Noise],
        times: Times | None,
        noisy: frozenset[str],
        slow: frozenset[str],
    ) -> tuple[LayerOutcome, ...]:
        """Return what became of each layer, in execution order."""
        noise = {each.layer: each.sqnr_db for each in ranking}
        parts = {} if times is None else times.parts
        outcomes = []
        for name in graph.order():
            node = graph[name]
            if node.op not in LAYER_OPS:
                continue
            why = found.reasons.get(name, "")
            if name in noisy:
                why = "in 8 bits it brings too much noise"
            elif name in slow:
                why = "it is no faster in 8 bits"
            chain = found.chains.get(name)
            known = ranges.tensors.get(chain.nodes[-1].name if chain else name)
            part = parts.get(name)
            outcomes.append(
                LayerOutcome(
                    name,
                    node.op,
                    why,
                    None if known is None else (known.min, known.max),
                    noise.get(name),
                    None
                    if part is None
                    else (part.eigen / 1e3, part.onednn / 1e3, part.int8 / 1e3),
                )
            )
        return tuple(outcomes)

    def _float(self, reason: str, layers: tuple[LayerOutcome, ...] = ()) -> Outcome:
        self._state.forget()
        return Outcome(
            graph=self._graph,
            is_float=True,
            reason=f"{reason}: the float graph is kept",
            layers=layers,
            **self._facts(),
        )

    def _facts(self) -> dict[str, Any]:
        return {
            "isa": "vnni" if sums_exactly(self._wanted.isa) else "avx2",
            "samples": samples_in(calibration_feeds(self._graph, self._calibrating)),
            "seconds": self._seconds,
            "notes": tuple(dict.fromkeys(self._notes)),
        }

    def _out_of_time(self) -> bool:
        return time.monotonic() - self._began > 60 * self._wanted.minutes

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        self._seconds[name] = time.monotonic() - start

    def _step(self, title: str) -> Advance:
        """Return what takes the steps of one part as steps of all."""
        done, self._steps = self._steps, self._steps

        def advance(name: str, count: int) -> None:
            self._steps = max(self._steps, done + count)
            self._advance(f"{title}: {name}", count and self._steps)

        return advance

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Say on Ctrl-C how to go on."""
        try:
            yield
        except KeyboardInterrupt:
            if self._state.path is not None and self._state.found:
                logger.info("what was found so far is kept in %s; the same command goes on from "
                            "there", self._state.path)  # fmt: skip
            raise


def _pieces(data: Mapping[str, Array]) -> Iterator[bytes]:
    for name, array in sorted(data.items()):
        yield repr((name, array.dtype.str, array.shape)).encode()
        yield repr(array.tolist()).encode() if array.dtype == object else array.tobytes()


def _digest(pieces: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
