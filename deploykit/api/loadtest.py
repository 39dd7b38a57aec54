"""How a server bears a load."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from numpy.typing import ArrayLike

from deploykit.api.public import Command, public
from deploykit.calling.call_options import LoadTestOptions
from deploykit.calling.model_clients import prepared_calls
from deploykit.calling.server_load import Generators, Load, search
from deploykit.serving.client.connection import DEFAULT_CONNECTION, Connection
from deploykit.serving.client.load_generator import LoadStep
from deploykit.serving.protocol.signatures import Signature
from deploykit.text.progress import Work, working
from deploykit.transforms.core.display.as_html import AsHtml
from deploykit.transforms.core.display.documents import Hidden, Written
from deploykit.transforms.core.display.flag import Flag
from deploykit.transforms.core.errors import Error

DEFAULT = LoadTestOptions()
_CONCURRENCY = (1, 2, 4, 8)


def _about(how: LoadTestOptions) -> dict[str, Any]:
    return {"batch": how.batch, "latency_limit_ms": how.latency_limit}


@dataclass(frozen=True)
class LoadTest(AsHtml):
    """What loads on a server measured."""

    address: str
    model: str
    signature: str
    takes: Hidden[Signature]
    how: Annotated[LoadTestOptions, Written(flat=True, by=_about)]
    loads: Sequence[Load]
    highest_rate: float | None = None
    """Calls a second at which the limit of the latency holds; None: it was not sought."""
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """What became of files on the way to each input, in words."""


@public(Command(heading="Load", requires=(), has_limits=False))
def load_test(
    address: str,
    model: str,
    data: Annotated[
        str | os.PathLike[str] | Mapping[str, ArrayLike],
        Flag("--data", metavar="DATA", heading="Data"),
    ],
    how: LoadTestOptions = DEFAULT,
    connection: Connection = DEFAULT_CONNECTION,
) -> LoadTest:
    """Measure how a server handles load.

    Works with any server that has the TensorFlow Serving API or, with `protocol` v2, the Open
    Inference Protocol (KServe v2). With `rate`, latency is measured from the scheduled send time of
    a request, so it includes the wait behind a stalled server. No request is retried.

    Args:
        address: `host:port` of gRPC, or `unix:path`; with `protocol="v2"` also a URL of HTTP.
        model: the name under which it is served.
        data: Samples to send one after another: a .npz file of arrays by input name, a folder of
            TFRecords, images or CSV files, or DIR/NAME if DIR contains records of several names.
        how: which version is asked, and with which load.
        connection: how the server is spoken to.

    Error: several kinds of load are asked for. CallError: there is no such server, model or
    version, or the model refuses the first call. FileError, GraphError: the data do not fit.

    Commands:
        deploykit load-test localhost:8500 fashion
            --data models/fashion/test_1000.npz --concurrency 1,2,4
        deploykit load-test localhost:8500 fashion --data photos
            --preprocess 0..1 --latency-limit 50

    Example:
        >>> with deploykit.serve("models", port=0) as server:
        ...     found = deploykit.load_test(
        ...         server.address, "half_plus_two", {"x": [[2.0]]}, concurrency=[1], seconds=0.2
        ...     )
        >>> [each.callers for each in found.loads], found.loads[0].failed
        ([1], 0)
    """
    if sum((bool(how.concurrency), how.rate is not None, how.latency_limit is not None)) > 1:
        raise Error("give-one", options=["--concurrency", "--rate", "--latency-limit"])
    with working("load-test") as advance:
        calls = prepared_calls(address, model, data, how, connection)
        with Generators(calls.endpoint, calls.requests, how.processes) as generators:
            loads, highest = _measured(generators, how, advance)
    return LoadTest(address, model, calls.signature, calls.takes, how, loads, highest, calls.fed)


def _measured(
    generators: Generators, how: LoadTestOptions, advance: Work
) -> tuple[list[Load], float | None]:
    """Return what each load measured, and the highest rate that held, where one is sought."""
    if how.latency_limit is not None:
        return search(generators, how.seconds, how.latency_limit, advance)
    if how.rate is not None:
        steps = [LoadStep(how.seconds, rate=how.rate)]
    else:
        steps = [LoadStep(how.seconds, callers=each) for each in how.concurrency or _CONCURRENCY]
    return [generators.measure(step, advance) for step in steps], None
