"""How a server bears a load."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deploykit.calling.call_options import LoadTestOptions
from deploykit.calling.prepared_calls import prepared_calls
from deploykit.calling.server_load import Generators, Load, search
from deploykit.serving.client.connection import DEFAULT_CONNECTION, Connection
from deploykit.serving.client.load_generator import LoadStep
from deploykit.serving.protocol.signatures import Signature
from deploykit.storage.parameters import with_options
from deploykit.text.progress import Work, working
from deploykit.transforms.core.display.as_html import AsHtml
from deploykit.transforms.core.errors import Error

DEFAULT = LoadTestOptions()
_CONCURRENCY = (1, 2, 4, 8)


@dataclass(frozen=True)
class LoadTest(AsHtml):
    """What loads on a server measured."""

    address: str
    model: str
    signature: str
    takes: Signature
    how: LoadTestOptions
    loads: Sequence[Load]
    highest_rate: float | None = None
    """Calls a second at which the limit of the latency holds; None: it was not sought."""
    fed: Mapping[str, str] = field(default_factory=dict)
    """What became of files on the way to each input, in words."""

    def document(self) -> dict[str, Any]:
        """Return it as plain data; latencies are in milliseconds."""
        return {
            "address": self.address,
            "model": self.model,
            "signature": self.signature,
            "batch": self.how.batch,
            "loads": [each.document() for each in self.loads],
            "latency_limit_ms": self.how.latency_limit_ms,
            "highest_rate": self.highest_rate,
        }


def load_test(
    address: str,
    model: str,
    data: str | os.PathLike[str] | Mapping[str, Any],
    how: LoadTestOptions = DEFAULT,
    connection: Connection = DEFAULT_CONNECTION,
    **options: Any,
) -> LoadTest:
    """Measure how a server bears a load.

    Any server of the TensorFlow Serving API will do; with `protocol="v2"`, any server of the Open
    Inference Protocol.

    With a rate, a latency counts from when a call was due, so a server that stalls is charged for
    the calls that waited. No call is repeated.

    Args:
        address: `host:port` of gRPC, or `unix:path`; with `protocol="v2"` also a URL of HTTP.
        model: the name under which it is served.
        data: samples that are sent in turn: arrays by input name, whose first axis is that of the
            samples; a `.npz` file of such arrays; or a folder of TFRecords, images or CSV files.
        how: which version is asked, and with which load.
        connection: how the server is spoken to.
        options: fields of `LoadTestOptions`, such as `concurrency` and `seconds`, or of
            `Connection`, such as `timeout` (in seconds).

    Error: several kinds of load are asked for. CallError: there is no such server, model or
    version, or the model refuses the first call. FileError, GraphError: the data do not fit.

    Example:
        >>> with deploykit.serve("models", port=0) as server:
        ...     found = deploykit.load_test(
        ...         server.address, "half_plus_two", {"x": [[2.0]]}, concurrency=[1], seconds=0.2
        ...     )
        >>> [each.callers for each in found.loads], found.loads[0].failed
        ([1], 0)
    """
    how, connection = with_options("load_test", options, how, connection)
    if sum((bool(how.concurrency), how.rate is not None, how.latency_limit_ms is not None)) > 1:
        raise Error("give-one", options=["--concurrency", "--rate", "--search-latency-limit"])
    with working("load-test") as advance:
        calls = prepared_calls(address, model, data, how, connection)
        with Generators(calls.endpoint, calls.requests, how.processes) as generators:
            loads, highest = _measured(generators, how, advance)
    return LoadTest(address, model, calls.signature, calls.takes, how, loads, highest, calls.fed)


def _measured(
    generators: Generators, how: LoadTestOptions, advance: Work
) -> tuple[list[Load], float | None]:
    """Return what each load measured, and the highest rate that held, where one is sought."""
    if how.latency_limit_ms is not None:
        return search(generators, how.seconds, how.latency_limit_ms, advance)
    if how.rate is not None:
        steps = [LoadStep(how.seconds, rate=how.rate)]
    else:
        steps = [LoadStep(how.seconds, callers=each) for each in how.concurrency or _CONCURRENCY]
    return [generators.measure(step, advance) for step in steps], None
