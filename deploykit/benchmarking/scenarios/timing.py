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
            raise GraphError(
                f"there is no scenario '{self.scenario}'; there are: {', '.join(SCENARIOS)}"
            )
        if self.scenario == SERVER and self.rate is None:
            raise GraphError(
                "scenario server needs a rate (--rate): the calls that arrive in a second"
            )
        for name, value in (("rate", self.rate), ("latency limit", self.latency_limit)):
            if value is not None and self.scenario != SERVER:
                raise GraphError(f"a {name} has a meaning in scenario server alone")
            if value is not None and not 0 < value < math.inf:
                raise GraphError(f"the {name} is {value:g}, and has to be above 0")
        if self.scenario and not (self.runs is None and self.rounds is None):
            raise GraphError("a scenario lasts for so many seconds, not for so many calls")

    def settings(self, given: Settings, *, chosen: bool) -> Settings:
        """Return settings with the calls in flight of the scenario, unless the user chose them."""
        if self.scenario == SINGLE and given.concurrency > 1:
            raise GraphError("in scenario single one call follows another, so there are no "
                             f"{given.concurrency} in flight")  # fmt: skip
        if self.scenario not in (OFFLINE, SERVER) or chosen or given.concurrency > 1:
            return given
        return replace(given, concurrency=usable_cores())
