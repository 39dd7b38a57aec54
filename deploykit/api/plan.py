"""plan: the number of server replicas for a request rate."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from numpy.typing import ArrayLike

from deploykit.api.public import Command, public
from deploykit.client.model_clients import prepared_calls
from deploykit.client.server_load import Generators
from deploykit.exporting.manifests import ReplicaCounts, check_manifests, fill_manifests
from deploykit.planning.from_results import PlanCheck, recorded, tried
from deploykit.planning.measuring import Measured, measure_server
from deploykit.planning.plan_options import NOTHING, ZONE, PlanOptions
from deploykit.planning.sizing import Forecast, Size, p99_document, sized
from deploykit.rendering.progress import working
from deploykit.serving.client.endpoint import DEFAULT_CONNECTION, Connection
from deploykit.serving.client.load_generator import MAX_LATE
from deploykit.serving.protocol.signatures import Signature
from deploykit.system.machine import cores_behind
from deploykit.transforms.common.documents import AsHtml, Flat, Hidden, written
from deploykit.transforms.common.errors import Error
from deploykit.transforms.common.flag import Flag

DEFAULT = PlanOptions()
_MEASURE, _TRY = "measure the server", "try the plan"


@dataclass(frozen=True)
class ReplicaPlan(AsHtml):
    """The number of replicas for a request rate, and the measurements behind it."""

    model: str
    how: Hidden[PlanOptions]
    forecast: Hidden[Forecast]
    size: Flat[Size]
    check: PlanCheck | None
    """The predicted and the measured latency; None if there was no measurement to compare with."""
    takes: Hidden[Signature | None] = None
    """The signature of the measured server; None if the plan was made from a file."""
    own_cores: Hidden[int | None] = None
    """The number of cores of the server; None if unknown."""
    notes: tuple[str, ...] = ()
    filled: tuple[Path, ...] = ()
    """The manifest files in which deploykit set the number of replicas."""
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """The preprocessing of files for each input, as text."""

    @property
    @written(flat=True)
    def _load(self) -> dict[str, Any]:
        how, measured = self.how, self.measured
        return {
            "rate": how.rate,
            "p99_limit_ms": how.latency_limit,
            "tolerate": how.tolerate,
            "zones": how.zones,
            "measured": {
                "source": measured.source,
                "slots": measured.slots,
                "highest_rate": round(measured.capacity, 4),
                "lone_p50_ms": round(measured.unloaded_ms[0], 3),
                "lone_p99_ms": round(measured.unloaded_ms[1], 3),
                "most_load": measured.most_load,
                "front_end_ms": round(1e3 * measured.front_end, 4),
                "generator_busy": round(measured.busy, 3),
            },
        }

    @property
    @written("curve")
    def _curve(self) -> list[dict[str, float | None]]:
        return [
            {
                **{key: value and round(value, 3) for key, value in p99_document(item).items()},
                "rate": round(rate, 4),
                "load": round(self.forecast.load(rate), 4),
            }
            for rate, item in self.forecast.curve
        ]

    @property
    def measured(self) -> Measured:
        """The measured service times and capacity of one replica."""
        return self.forecast.measured

    @property
    @written()
    def cores(self) -> int:
        """The number of CPU cores of one replica."""
        return self.how.cores or self.own_cores or self.measured.slots

    @property
    @written(or_null=True)
    def problem(self) -> str:
        """Why the plan is not valid; empty if it is."""
        limit = f"{self.how.latency_limit:g} ms"
        if self.check is not None and not self.check.passed:
            return (
                f"this server misses the estimate: at {self.check.rate:.4g} requests/s "
                f"{self.check.failed} requests failed and p99 is {self.check.p99_ms:.3g} ms, "
                f"predicted {self.check.predicted_ms:.3g} ms"
            )
        if not self.size.bears:
            least = self.forecast.curve[0][1].high_ms
            return (
                f"no number of replicas keeps p99 within {limit}: a nearly idle replica has a p99 "
                f"of {least:.3g} ms"
            )
        needed, (low, high) = self.size.needed[self.how.tolerate], self.how.replicas
        lost = "" if self.how.tolerate == NOTHING else f" when a {self.how.tolerate} is lost"
        if needed is None:
            return f"with one zone, no replica remains{lost} (--zones)"
        if needed > high:
            return (
                f"{needed} replicas are needed for {self.how.rate:g} requests/s with p99 within "
                f"{limit}{lost}, but only {low}..{high} are allowed (--replicas)"
            )
        return ""


@public(Command(heading="Plan", requires=(), has_limits=False))
def plan(
    source: str | os.PathLike[str],
    model: str | None = None,
    data: Annotated[
        str | os.PathLike[str] | Mapping[str, ArrayLike] | None,
        Flag("--data", metavar="DATA", heading="Measurement"),
    ] = None,
    how: PlanOptions = DEFAULT,
    connection: Connection = DEFAULT_CONNECTION,
) -> ReplicaPlan:
    """Estimate the number of server replicas for a target request rate.

    SOURCE is the address of a server, which is measured as one replica. Run it alone, on the
    hardware of one replica. Any server with the TensorFlow Serving API works. The measured service
    times then drive a queueing simulation of many replicas. To check the estimate, the server gets
    the load of one replica. SOURCE may also be a file that deploykit load-test or deploykit
    benchmark --scenario server wrote with -o. Then leave out `data`; MODEL is optional.

    The p99 latency assumes that requests are distributed to replicas at random, as in Kubernetes.
    The table also shows p99 with a least-loaded balancer. Exits with 5 if no number of replicas is
    enough, or if the server misses the estimate.

    Args:
        source: the gRPC address of a server, `host:port` or `unix:path`; or a file that `load-test`
            or `benchmark --scenario server` wrote with `-o`.
        model: the name of the served model; optional for a file.
        data: Samples to send one after another: a .npz file of arrays by input name, a folder of
            TFRecords, images or CSV files, or DIR/NAME if DIR contains records of several names.
            Required if SOURCE is an address.
        how: the request rate, the latency limit, and more constraints of the plan.
        connection: the protocol, TLS and timeout of the connection.

    Error: options contradict each other. CallError: the server, model or version does not exist, or
    the model rejects the first request. VerificationError: the server could not be measured.
    FileError, GraphError: the data, the file or the manifests are invalid or do not match.

    Commands:
        deploykit plan localhost:8500 fashion --data models/fashion/test_1000.npz
            --rate 5000 --latency-limit 50
        deploykit plan load.json --rate 5000 --latency-limit 50 --tolerate zone
        deploykit plan localhost:8500 fashion --data models/fashion/test_1000.npz
            --rate 5000 --latency-limit 50 --manifests served --plot plan.png

    Example:
        >>> found = deploykit.plan("load.json", rate=5000, latency_limit=60)
        >>> found.size.replicas, found.problem
        (87, '')
    """
    how.check()
    name = os.fspath(source)
    if Path(name).is_file() or name.endswith(".json"):
        return _from_file(name, model, data, how)
    if model is None or data is None:
        raise Error("plan-address-needs-model", name=name)
    if how.manifests is not None:
        check_manifests(how.manifests, model)
    return _from_server(name, model, data, how, connection)


def _from_file(name: str, model: str | None, data: object, how: PlanOptions) -> ReplicaPlan:
    if data is not None:
        raise Error("plan-file-needs-no-data", name=name)
    result = recorded(name, model)
    if how.manifests is not None:
        check_manifests(how.manifests, result.model)
    with working("plan") as advance:
        advance("simulating", 0)
        forecast = Forecast(result.measured)
        size = sized(forecast, how)
        check = result.check(forecast, (how.rate or 0.0) / size.replicas)
    notes = (result.note,)
    return _finished(ReplicaPlan(result.model, how, forecast, size, check, notes=notes))


def _from_server(
    address: str,
    model: str,
    data: str | os.PathLike[str] | Mapping[str, ArrayLike],
    how: PlanOptions,
    connection: Connection,
) -> ReplicaPlan:
    with working("plan", _MEASURE, _TRY) as work:
        calls = prepared_calls(address, model, data, how, connection)
        with Generators(calls.endpoint, calls.requests, how.processes) as generators:
            work.begin(_MEASURE)
            at = f"the server at {address}"
            measured = measure_server(generators, how.seconds, at, work)
            forecast, size, check = tried(generators, measured, how, work.begin(_TRY))
    notes = []
    if measured.limit:
        notes.append(
            f"{measured.limit}, so a replica gets at most {100 * measured.most_load:.0f} % of the "
            f"measured requests/s: {measured.most_load * measured.capacity:.4g}"
        )
    if measured.late > MAX_LATE:
        notes.append(
            f"up to {100 * measured.late:.0f} % of the requests were sent late, so the client "
            "machine affects these results; run the client on another machine"
        )
    cores = cores_behind(address)
    return _finished(
        ReplicaPlan(
            model, how, forecast, size, check, calls.takes, cores, tuple(notes), fed=calls.fed
        )
    )


def _finished(replica_plan: ReplicaPlan) -> ReplicaPlan:
    """Set the number of replicas in the manifests of a valid plan."""
    if replica_plan.how.manifests is None or replica_plan.problem:
        return replica_plan
    size = replica_plan.size
    most = max(size.replicas + 1, size.needed[ZONE] or 0)
    busy = (
        size.bears
        / replica_plan.measured.capacity
        * min(1.0, replica_plan.measured.slots / replica_plan.cores)
    )
    counts = ReplicaCounts(replica_plan.model, size.replicas, most, busy)
    return replace(replica_plan, filled=tuple(fill_manifests(replica_plan.how.manifests, counts)))
