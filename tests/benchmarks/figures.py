"""A figure: what was measured in every round, and what it should reach. Tables and JSON of them."""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from deploykit.system.machine import machine

RESULTS = Path("benchmark-results")
WIDTH = 120


@dataclass(frozen=True)
class Figure:
    """One line of a table. The rounds of `ours` and `peer` were taken in turn.

    Of what is asked, `at_most` and `at_least` hold for the median of ours, `at_most_ratio` for the
    median of ours / peer, round by round; None: nothing is asked.
    """

    what: str
    unit: str
    ours: Sequence[float]
    peer: Sequence[float] = ()
    at_most: float | None = None
    at_least: float | None = None
    at_most_ratio: float | None = None

    @property
    def ratio(self) -> float | None:
        """The median of ours / peer, which holds where the machine's speed drifts."""
        if not self.peer or not all(self.peer):
            return None
        return statistics.median(a / b for a, b in zip(self.ours, self.peer, strict=True))

    @property
    def interval(self) -> tuple[float, float] | None:
        """Where the median lies, at 95 % or more: that of the ratio, without a peer that of ours.

        The rounds decide by their order alone, as in the sign test; None: they are fewer than 6.
        """
        values = list(self.ours)
        if self.peer:
            if not all(self.peer):
                return None
            values = [a / b for a, b in zip(self.ours, self.peer, strict=True)]
        rounds, outside, tail = len(values), 0, 1  # of 2 ** rounds equally likely outcomes
        while tail * 40 <= 2**rounds:  # as many as this are too extreme on one side
            outside += 1
            tail += math.comb(rounds, outside)
        if not outside:
            return None
        values.sort()
        return values[outside - 1], values[-outside]

    @property
    def asked(self) -> str:
        """What is asked, in words."""
        bars = (
            ("<=", self.at_most, f" {self.unit}"),
            (">=", self.at_least, f" {self.unit}"),
            ("ratio <=", self.at_most_ratio, ""),
        )
        return ", ".join(
            f"{sign} {_shown(bar)}{unit}" for sign, bar, unit in bars if bar is not None
        )

    @property
    def reached(self) -> bool | None:
        """Whether all that is asked is reached; None where nothing is."""
        ours, ratio = statistics.median(self.ours), self.ratio
        bars = [
            self.at_most is None or ours <= self.at_most,
            self.at_least is None or ours >= self.at_least,
            self.at_most_ratio is None or (ratio is not None and ratio <= self.at_most_ratio),
        ]
        return all(bars) if self.asked else None


def show(name: str, figures: Sequence[Figure]) -> None:
    """Print the figures of a benchmark, and write them to benchmark-results/NAME.json."""
    table = Table(name, box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("ours (median)", "peer (median)", "ratio", "asked", "reached"):
        table.add_column(column, justify="right")
    for figure in figures:
        medians = [
            f"{_shown(statistics.median(values))} {figure.unit}" if values else ""
            for values in (figure.ours, figure.peer)
        ]
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        if figure.interval is not None:
            within = " [{:.3g} to {:.3g}]".format(*figure.interval)
            if figure.peer:
                ratio += within
            else:
                medians[0] += within
        reached = {True: "yes", False: "NO", None: ""}[figure.reached]
        table.add_row(figure.what, *medians, ratio, figure.asked, reached)
    Console(width=WIDTH, highlight=False).print(table)
    seen = {name: machine()[name] for name in ("platform", "cpu", "cpus", "flags")}
    print(f"{seen['cpu']}, {seen['cpus']} CPUs: {', '.join(seen['flags'])}")
    found = [
        asdict(figure)
        | {"ratio": figure.ratio, "interval": figure.interval, "reached": figure.reached}
        for figure in figures
    ]
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": seen, "figures": found}, indent=2) + "\n")
    print(f"raw figures: {path}")


def measured_on() -> str:
    """Return a line for a page: the CPU, the load of the machine and the versions."""
    here = machine()
    flags = set(here["flags"])
    vnni = "AVX512 VNNI" if "avx512_vnni" in flags else "AVX2" if "avx2" in flags else "no AVX2"
    return (
        f"Measured on {date.today()}: {here['cpu']} ({vnni}), {here['cpus']} CPUs, load average "
        f"{here['load'][0]}, Python {here['versions']['python']}, "
        f"TensorFlow {here['versions']['tensorflow']}."
    )


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
