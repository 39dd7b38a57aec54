"""The number of replicas for a request rate: measurements, the estimate, and its check."""

from collections.abc import Iterator, Mapping
from typing import Any

from deploykit.rendering.tables import Table, table
from deploykit.rendering.templates import between, filled, filled_lines, rendered_rows

_LOST = {"nothing": "all replicas", "replica": "one replica lost", "zone": "one zone lost"}
_FEW = 1000
"""The number of requests below which a 99th percentile is uncertain."""


def lines(results: Mapping[str, Any]) -> Iterator[str | Table]:
    """Yield the document of a plan."""
    yield from filled_lines(
        results["measured"],
        "one replica ({source}): at most {highest_rate:number} requests/s, concurrency {slots:,}",
        "unloaded request: {lone_p50_ms:number} ms (p99 {lone_p99_ms:number} ms); each new request "
        "delays running ones by {front_end_ms:number} ms",
    )
    if not results["problem"]:
        yield from filled_lines(
            results,
            "{rate:number} requests/s with p99 within {p99_limit_ms:number} ms: "
            "{replicas:n replica} of {cores:n core}",
        )
    yield table(
        results["outcomes"],
        {
            "with": lambda row: _LOST[row["lost"]],
            "replicas": "{replicas}",
            "load": "{load:percent}",
            "p99 ms": lambda row: filled("{p99_ms:number}", row) or "overloaded",
            "range": lambda row: (
                None
                if row["p99_ms"] is None
                else filled("{p99_low_ms:number}-{p99_high_ms:number}", row)
            ),
            "least loaded": "{p99_least_busy_ms:number}",
            "within limit": "{holds:yes}",
        },
        "least loaded: p99 ms if each request goes to the least loaded replica",
    )
    yield from _headroom(results)
    yield from _check(results["check"]) if results["check"] else ["not compared with a server"]
    yield from rendered_rows(results["notes"], "note: {}")
    yield from rendered_rows(results["filled"], "filled {}")


def _headroom(results: Mapping[str, Any]) -> Iterator[str]:
    if results["rate_of_one"]:
        above = 100 * (results["highest_rate"] / results["rate"] - 1)
        yield from filled_lines(
            results,
            f"headroom: up to {{highest_rate:number}} requests/s are within the limit "
            f"({above:+.0f} %), {{rate_of_one:number}} per replica",
        )
    needed = results["needed"]
    if needed["nothing"]:
        lost = (f"{needed[one] or 'no number'} with a {one} lost" for one in ("replica", "zone"))
        yield f"replicas needed: {needed['nothing']}, {', '.join(lost)} (of {results['zones']})"
    yield from filled_lines(
        results,
        "cost: {cost.hour:,.2f} per hour, {cost.month:,.0f} per month, {cost.million_calls:number} "
        "per million requests",
    )


def _check(check: Mapping[str, Any]) -> Iterator[str]:
    runs = [run["p99_ms"] for run in check["runs"]]
    spread = f" ({between((min(runs), max(runs)))} in {len(runs)} runs)" if len(runs) > 1 else ""
    failed = ", {failed} failed" if check["failed"] else ""
    few = "; uncertain: few requests" if check["calls"] < _FEW else ""
    return filled_lines(
        check,
        f"check at {{rate:number}} requests/s to one replica: p99 {{p99_ms:number}} ms{spread} of "
        f"{{calls:,}} requests{failed}; predicted for the same arrivals: "
        f"{{predicted_ms:number}} ms ({{ratio:.2f}}x){few}",
    )
