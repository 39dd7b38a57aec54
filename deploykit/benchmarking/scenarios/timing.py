"""How long models are measured, or how often they are called, or in which scenario."""

import math
from dataclasses import dataclass, replace

from deploykit.benchmarking.settings import SECONDS, Settings
from deploykit.hardware.machine import usable_cores
from deploykit.transforms.core.errors import GraphError

SINGLE, OFFLINE, SERVER = SCENARIOS = ("single", "offline", "server")


@dataclass(frozen=True)
class Timing:
    """How long, how often, or in which scenario models are measured."""

    seconds: float = SECONDS
    """How long each model or style of input is measured at most; less if all is decided."""
    runs: int | None = None
    """How many calls instead."""
    rounds: int | None = None
    """Turns into which `runs` are divided (20), or of each style of input (5)."""
    scenario: str | None = None
    """One of MLPerf's scenarios instead of turns, for `seconds`: `single` (one call after another),
    `offline` (all samples, with as many calls in flight as there are cores) or `server` (calls
    arrive at random)."""
    rate: float | None = None
    """In scenario `server`, calls that arrive in a second."""
    latency_limit: float | None = None
    """There, the most milliseconds that 99 % of calls may take."""

    def check(self) -> None:
        """Raise GraphError where options contradict each other."""
        if self.scenario not in (None, *SCENARIOS):
            raise GraphError("not-one-of", what="the scenario", known=SCENARIOS, got=self.scenario)
        if self.scenario == SERVER and self.rate is None:
            raise GraphError(
                "option-needs",
                option="scenario server",
                needed="a rate (--rate): the calls that arrive in a second",
            )
        for name, value in (("rate", self.rate), ("latency limit", self.latency_limit)):
            if value is not None and self.scenario != SERVER:
                raise GraphError("only-for", option=f"the {name}", what="scenario server")
            if value is not None and not 0 < value < math.inf:
                raise GraphError("out-of-range", name=f"the {name}", expected="above 0", got=value)
        if self.scenario and not (self.runs is None and self.rounds is None):
            raise GraphError("scenario-needs-duration")

    def settings(self, given: Settings, *, chosen: bool) -> Settings:
        """Return settings with the calls in flight of the scenario, unless the user chose them."""
        if self.scenario == SINGLE and given.concurrency > 1:
            raise GraphError("scenario-single-concurrency", concurrency=given.concurrency)
        if self.scenario not in (OFFLINE, SERVER) or chosen or given.concurrency > 1:
            return given
        return replace(given, concurrency=usable_cores())
