"""The whole way to an 8-bit graph that is faster and still right, or to the float graph.

Shift and calibrate; rank layers by their noise and turn the noisiest back to float until the
answers hold; turn back what is no faster; then compare the two graphs end to end.
"""

import contextlib
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from deploykit.benchmarking.inputs import batches
from deploykit.benchmarking.settings import Settings
from deploykit.hardware.machine import environment, machine
from deploykit.quantization.accuracy import Judge, Judgement
from deploykit.quantization.calibrated_graph import prepare
from deploykit.quantization.int8_graph import int8_graph
from deploykit.quantization.keep_float import MAX_DROP, MIN_SQNR_DB, Choice, choose_layers
from deploykit.quantization.layer_times import layer_times
from deploykit.quantization.preconditions import (
    has_layers,
    refuse_gaps,
    refuse_quantized,
    refuse_unknown_layers,
)
from deploykit.quantization.result import LayerOutcome, Outcome, layer_outcomes
from deploykit.quantization.sensitivity import JUDGED, Noise, rank
from deploykit.quantization.speed import FEWER, INT8, choose, faster
from deploykit.storage.resume_file import State, digest, pieces
from deploykit.transforms.core.errors import Error, GraphError, VerificationError
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.int8.isa import sums_exactly
from deploykit.transforms.core.int8.plan import OPS, Plan, plan
from deploykit.transforms.core.int8.private_ops import probe
from deploykit.transforms.core.int8.ranges import load_ranges
from deploykit.transforms.core.tensors import Array
from deploykit.verification.sample_batches import (
    calibration_feeds,
    labelled_feeds,
    samples_in,
    split_samples,
    spread_samples,
)
from deploykit.verification.verify import QUANTIZED_BAR_DB

logger = logging.getLogger("deploykit")

MINUTES = 4.0

Advance = Callable[[str, int], None]


@dataclass(frozen=True)
class Quantization:
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
    requested: Quantization = Quantization(),
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
        requested: the bars, and what it runs on.
        evaluation: arrays by input name and `labels`, by which the metric is taken.
        state: a file that keeps what takes long while this runs, and from which it goes on when it
            was interrupted; it is removed at the end.
        advance: called with what comes next, and how many steps there are.

    GraphError: the data do not fit, an activation holds NaN or Inf, the metric fails, there is no
    layer of a name in `keep_float`, or the graph is in 8 bits already. VerificationError: the 8-bit
    graph keeps less than 15 dB. KeyboardInterrupt: it was interrupted.
    """
    refuse_quantized(graph)
    refuse_unknown_layers(graph, requested.keep_float)
    return _Work(graph, data, requested, evaluation, state, advance).run()


class _Work:
    """The steps, each of which leaves what the next ones need."""

    def __init__(
        self,
        graph: Graph,
        data: Mapping[str, Array],
        requested: Quantization,
        evaluation: Mapping[str, Array] | None,
        state: str | os.PathLike[str] | None,
        advance: Advance,
    ) -> None:
        self._graph = graph
        self._requested = requested
        self._advance = advance
        self._began = time.monotonic()
        self._seconds: dict[str, float] = {}
        self._steps = 0
        data = {name: array for name, array in data.items() if name != "labels"}
        self._calibrating, self._held_out, note = split_samples(graph, data)
        refuse_gaps(graph, data)
        if evaluation is not None:
            refuse_gaps(graph, evaluation)
        self._notes = [note] if note else []
        self._timed_with = _filled(self._held_out, requested.settings.batch or 1)
        batches(graph, requested.settings.batch, data=self._timed_with)  # can it be run?
        self._evaluation = evaluation
        asked = {
            "graph": digest(graph.serialized()),
            "data": digest(pieces(data)),
            "isa": requested.isa,
            "keep_float": requested.keep_float,
            "environment": environment(),
            **{name: machine()[name] for name in ("cpu", "flags")},
        }
        self._state = State(state, "quantizing", asked)

    def run(self) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="deploykit-") as folder, self._explained():
            outcome = self._outcome(str(Path(folder, "ranges.json")))
        self._state.forget()
        return outcome

    def _outcome(self, path: str) -> Outcome:
        if not has_layers(self._graph):
            return self._float("there is nothing to quantize: no convolution or matrix product is "
                               "in float32")  # fmt: skip
        missing = set(OPS.values()) - probe(OPS.values())
        if missing:
            return self._float(f"this TensorFlow lacks {', '.join(sorted(missing))}")
        with contextlib.ExitStack() as stack:
            by_labels = self._judge_by_labels(stack)  # first, as what is wrong is soon seen
            with self._timed("calibrate"):
                shifted, notes = prepare(
                    self._graph,
                    calibration_feeds(self._graph, self._calibrating),
                    path,
                    state=self._state,
                    advance=self._step("calibrate"),
                )
                self._notes += notes
            found = plan(shifted, load_ranges(path), self._requested.keep_float)
            if not found.chains:
                layers = layer_outcomes(shifted, found, load_ranges(path))
                return self._float("no layer can compute in 8 bits", layers)
            return self._search(shifted, found, path, by_labels)

    def _search(self, graph: Graph, found: Plan, path: str, by_labels: Judge | None) -> Outcome:
        requested, ranges = self._requested, load_ranges(path)

        def build(keep_float: Iterable[str]) -> Graph:
            return int8_graph(graph, path, requested.isa, (*requested.keep_float, *keep_float))

        with self._timed("rank"):
            ranking = self._rank(graph, path)
        with Judge(self._graph, calibration_feeds(self._graph, self._held_out)) as judge:
            with self._timed("judge"):
                chosen = self._choose(ranking, build, judge, by_labels)
            noisy = frozenset(chosen.keep_float)
            if len(noisy) == len(found.chains):
                layers = layer_outcomes(graph, found, ranges, ranking, noisy=noisy)
                return self._float(_too_noisy(chosen, requested), layers)
            with self._timed("time"):
                runs = chosen.trials[0].judgement is not None  # with all layers in 8 bits
                timed = found if runs else plan(graph, ranges, (*requested.keep_float, *noisy))
                times = layer_times(
                    graph,
                    build(() if runs else noisy),
                    timed,
                    requested.settings,
                    data=self._timed_with,
                    advance=self._step("time"),
                )
            slow = choose(graph, timed, times, noisy & timed.chains.keys()).stay_float | noisy
            kept = {INT8: noisy, FEWER: slow}
            if len(slow) in (len(noisy), len(found.chains)):
                del kept[FEWER]
            with self._timed("compare"):
                gain = faster(
                    self._graph,
                    {name: build(floats) for name, floats in kept.items()},
                    times.onednn_is_on,
                    requested.settings,
                    data=self._timed_with,
                    advance=self._step("compare"),
                )
            with self._timed("judge the result"):
                int8 = build(kept[gain.name])
                judgement = judge.judge(int8)
                evaluation = None if by_labels is None else by_labels.judge(int8)
        if not judgement.sqnr_db >= QUANTIZED_BAR_DB:
            self._state.forget()
            raise VerificationError(
                f"in 8 bits the answers keep {judgement.sqnr_db:.1f} dB on held-out samples, below "
                f"{QUANTIZED_BAR_DB:g} dB; nothing was written (a higher --min-sqnr keeps more "
                "layers float)"
            )
        return Outcome(
            graph=int8 if gain.is_kept else self._graph,
            is_float=not gain.is_kept,
            reason=str(gain),
            layers=layer_outcomes(graph, found, ranges, ranking, times, noisy, kept[gain.name]),
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
                isa=self._requested.isa,
                keep_float=self._requested.keep_float,
                known=known,
                on_result=keep,
                advance=self._step("rank"),
            )

    def _choose(
        self,
        ranking: list[Noise],
        build: Callable[[Iterable[str]], Graph],
        judge: Judge,
        by_labels: Judge | None,
    ) -> Choice:
        """Return the layers that stay float for the answers to hold; on labels too, if given."""
        requested, best = self._requested, float("-inf")

        def judged(keep_float: tuple[str, ...]) -> Judgement:
            nonlocal best
            self._advance(f"judge with {len(keep_float)} layers more in float", 0)
            int8 = build(keep_float)
            found = judge.judge(int8)
            best = max(best, found.sqnr_db)
            if by_labels is None or not found.sqnr_db >= requested.min_sqnr:
                return found
            scored = by_labels.judge(int8)
            return replace(found, metric=scored.metric, before=scored.before, after=scored.after)

        chosen = choose_layers(
            [noise.layer for noise in ranking],
            judged,
            min_sqnr=requested.min_sqnr,
            max_drop=requested.max_drop,
            out_of_time=lambda: self._is_late() and best >= QUANTIZED_BAR_DB,
        )
        if not chosen.holds and self._is_late():
            self._notes.append(
                f"the search ended after {requested.minutes:g} minutes, before the answers held; a "
                "larger --budget keeps more layers float"
            )
        return chosen

    def _judge_by_labels(self, stack: contextlib.ExitStack) -> Judge | None:
        if self._evaluation is None:
            return None
        feeds, labels = labelled_feeds(self._graph, self._evaluation)
        metric = self._requested.metric
        if labels is None and ":" not in metric:
            raise GraphError(
                f"metric {metric} needs an array `labels`, which the evaluation data do not hold"
            )
        return stack.enter_context(Judge(self._graph, feeds, labels, metric))

    def _float(self, reason: str, layers: tuple[LayerOutcome, ...] = ()) -> Outcome:
        reason = f"{reason}, so the float graph is kept"
        return Outcome(self._graph, True, reason, layers, **self._facts())

    def _facts(self) -> dict[str, Any]:
        return {
            "isa": "vnni" if sums_exactly(self._requested.isa) else "avx2",
            "samples": samples_in(calibration_feeds(self._graph, self._calibrating)),
            "seconds": self._seconds,
            "notes": tuple(dict.fromkeys(self._notes)),
        }

    def _is_late(self) -> bool:
        return time.monotonic() - self._began > 60 * self._requested.minutes

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
        """Say, where the work ends early, how to go on."""
        try:
            yield
        except (KeyboardInterrupt, Error):
            path = self._state.path
            if path is not None and path.exists() and self._state.found:
                logger.info("what was found so far is kept in %s; the same command goes on from "
                            "there", path)  # fmt: skip
            raise


def _filled(data: Mapping[str, Array], batch: int) -> dict[str, Array]:
    """Return samples again and again, where they are fewer than a batch."""
    places = {name: np.arange(max(len(a), batch)) % len(a) for name, a in data.items() if a.size}
    return {name: a[places[name]] if a.ndim and a.size else a for name, a in data.items()}


def _too_noisy(chosen: Choice, requested: Quantization) -> str:
    """Return why no layer is in 8 bits."""
    tried = [each for each in chosen.trials if len(each.keep_float) < len(chosen.keep_float)]
    if not any(trial.judgement for trial in tried):
        return "TensorFlow cannot run the 8-bit graph"
    return (
        f"with any layer in 8 bits the answers keep less than {requested.min_sqnr:g} dB or fall by "
        f"more than {requested.max_drop:g}"
    )
