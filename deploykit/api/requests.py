"""predict, status and load_test: requests to a model server."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from numpy.typing import ArrayLike

from deploykit.api.public import Command, public
from deploykit.client.call_options import TOP, LoadTestOptions, PredictOptions
from deploykit.client.model_clients import chosen_of, model_client, prepared_calls
from deploykit.client.request_inputs import arrays_from
from deploykit.client.response import classes, names_themselves, values
from deploykit.client.server_load import Generators, Load, search
from deploykit.client.server_status import ModelVersions, ServedModels, ServerHealth, answers
from deploykit.rendering.progress import Work, working
from deploykit.serving.client.client import Client
from deploykit.serving.client.endpoint import DEFAULT_CONNECTION, CallError, Connection
from deploykit.serving.client.inference_client import UNNAMED
from deploykit.serving.client.load_generator import LoadStep
from deploykit.serving.client.rest_client import RestClient, is_rest
from deploykit.serving.protocol.signatures import Signature
from deploykit.serving.protocol.versions import VersionStatus
from deploykit.storage.image_files import labels_from
from deploykit.transforms.common.documents import AsHtml, Hidden, Written
from deploykit.transforms.common.errors import Error
from deploykit.transforms.common.flag import MAX_INT64, Flag
from deploykit.transforms.ir.tensors import Array

DEFAULT = PredictOptions()


@dataclass(frozen=True)
class Prediction(AsHtml):
    """The response of a served model."""

    address: str
    model: str
    signature: str
    inputs: Hidden[Mapping[str, Array]]
    """The arrays that were sent, by input name."""
    outputs: Annotated[Mapping[str, Array], Written("values", by=values)]
    classes: Annotated[
        Sequence[Sequence[Mapping[str, Any]]] | None, Written("predictions", if_set=True)
    ] = None
    """The best classes of each sample, best first, with the keys class, label and score; None if
    classes were not requested."""
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """The preprocessing of files for each input, as text."""
    sources: Hidden[tuple[str, ...]] = ()
    """The file or text of each sample; empty unless several were given, one per sample."""


@public(Command(heading="Request", requires=(), has_limits=False))
def predict(
    address: str,
    model: str,
    inputs: Annotated[
        Mapping[str, ArrayLike | os.PathLike[str]] | Sequence[str] | str,
        Flag(format="named values", metavar="[[NAME=]VALUE]...", is_required=False),
    ],
    how: PredictOptions = DEFAULT,
    connection: Connection = DEFAULT_CONNECTION,
) -> Prediction:
    """Send inputs to a served model and show its outputs.

    Works with any server that has the TensorFlow Serving API or, with `protocol` v2, the Open
    Inference Protocol (KServe v2). VALUE is described at `given`. If the model decodes images
    itself (deploykit export `preprocess`), the image file is sent unchanged. Otherwise the image is
    decoded and resized before sending, as in `deploykit calibrate` and `benchmark`.

    Args:
        address: a gRPC address, `host:port` or `unix:path`; with `protocol="v2"` also an HTTP URL.
        model: the name of the served model.
        inputs: a mapping from input names to values, or a list of `[NAME=]VALUE` as on the command
            line. A value is an array or nested list, a string for a string input, or the path of a
            `.npy` file or of an image. The batch axis may be omitted. Images are decoded and
            resized as in `calibrate` and `benchmark`. For an input of strings or encoded images,
            the bytes of the file at a `pathlib.Path` are sent.
        how: the model version, the signature, and the outputs to return.
        connection: the protocol, TLS and timeout of the connection.

    CallError: the server, model or version does not exist, or the model rejects the inputs.
    FileError, GraphError: an input is missing or unknown, or a value does not match its input.

    Commands:
        deploykit predict localhost:8500 fashion boot.png
        deploykit predict localhost:8500 fashion --input boot.png --preprocess 0..1
        deploykit predict localhost:8500 half_plus_two --input 2.0
        deploykit predict http://localhost:8000 resnet --protocol v2
            --input x=images.npy

    Example:
        >>> with deploykit.serve("models", port=0) as server:
        ...     found = deploykit.predict(server.address, "half_plus_two", {"x": [[2.0], [4.0]]})
        >>> found.outputs["y"].tolist()
        [[3.0], [4.0]]
    """
    names = None if how.labels is None else labels_from(how.labels)
    requested: Any = {"version": how.version, "label": how.version_label}
    with working("predict"), model_client(address, connection) as client:
        signature, chosen = chosen_of(client, model, how.signature, inputs, **requested)
        arrays, fed = arrays_from(inputs, chosen, how.preprocess)
        outputs = client.predict(
            model, arrays, signature=signature, outputs=how.outputs, **requested
        )
    best = None
    if names is not None or how.top is not None or names_themselves(outputs):
        best = classes(outputs, names, how.top or TOP)
    sources = () if isinstance(inputs, Mapping | str) else tuple(map(str, inputs))
    if best is None or not 1 < len(sources) == len(best):
        sources = ()
    named = signature or UNNAMED
    return Prediction(address, model, named, arrays, outputs, best, fed, sources)


@public(Command(requires=(), has_limits=False))
def status(
    address: str,
    model: str | None = None,
    *,
    version: Annotated[int | None, Flag(at_least=0, at_most=MAX_INT64, heading="Server")] = None,
    version_label: Annotated[str, Flag(metavar="LABEL", heading="Server")] = "",
    connection: Connection = DEFAULT_CONNECTION,
) -> ServerHealth | ServedModels | ModelVersions:
    """Show whether a server is healthy, or which models and versions it serves.

    ADDRESS is host:port for gRPC, or a URL for REST. With MODEL, shows its versions and their
    inputs and outputs. Without MODEL, REST lists all models of a deploykit server; TensorFlow
    Serving has no such list. Over gRPC, the health service is queried. TensorFlow Serving only has
    it if started with --enable_grpc_healthcheck_service. With `protocol` v2, shows whether the
    server is live and ready. Exits with 5 if the server is not serving, or a model has no available
    version.

    Args:
        address: a gRPC address, `host:port` or `unix:path`, or a REST URL, `http://host:port`.
        model: the name of the served model. Default: over REST, all models (deploykit servers
            only); over gRPC, the health service; with `protocol="v2"`, whether the server is live
            and ready.
        version: Version of the model [default: the newest].
        version_label: Choose the version by its label, such as stable.
        connection: the protocol, TLS and timeout of the connection.

    CallError: the server, model or version does not exist.

    Commands:
        deploykit status localhost:8500
        deploykit status localhost:8500 fashion
        deploykit status http://localhost:8501
        deploykit status http://localhost:8000 resnet --protocol v2

    Example:
        >>> with deploykit.serve("models", port=0) as server:
        ...     found = deploykit.status(server.address, "half_plus_two")
        >>> found.versions[0].state
        'AVAILABLE'
        >>> found.signatures["serving_default"].inputs["x"].shape
        (-1, 1)
    """
    if model is None and (version is not None or version_label):
        raise Error("version-needs-model")
    if is_rest(address) and connection.protocol == "tensorflow":
        rest = RestClient(address, connection)
        if model is None:
            return ServedModels(address, {name: _versions(rest, name) for name in rest.models()})
        states = rest.status(model, version, version_label)
        signatures = rest.metadata(model, version, version_label) if answers(states) else {}
        return ModelVersions(address, model, states, signatures)
    with model_client(address, connection) as client:
        if model is None:
            if isinstance(client, Client):
                return ServerHealth(address, client.health())
            live, ready, name = client.server()
            health = "SERVING" if live and ready else "NOT_SERVING"
            return ServerHealth(address, health, live, name)
        result = client.status(model, version=version, label=version_label)
        ready = answers(result)
        signatures = client.metadata(model, version=version, label=version_label) if ready else {}
        return ModelVersions(address, model, result, signatures)


def _versions(rest: RestClient, model: str) -> list[VersionStatus]:
    """Return the versions of a listed model, which may have none."""
    try:
        return rest.status(model)
    except CallError as error:
        if error.status == "NOT_FOUND":
            return []
        raise


DEFAULT_LOAD_TEST = LoadTestOptions()
_CONCURRENCY = (1, 2, 4, 8)


def _about(how: LoadTestOptions) -> dict[str, Any]:
    return {"batch": how.batch, "latency_limit_ms": how.latency_limit}


@dataclass(frozen=True)
class LoadTest(AsHtml):
    """The result of a load test: throughput and latency at each load."""

    address: str
    model: str
    signature: str
    takes: Hidden[Signature]
    how: Annotated[LoadTestOptions, Written(flat=True, by=_about)]
    loads: Sequence[Load]
    highest_rate: float | None = None
    """The highest rate within the latency limit, in requests per second; None if not searched."""
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """The preprocessing of files for each input, as text."""


@public(Command(heading="Load", requires=(), has_limits=False))
def load_test(
    address: str,
    model: str,
    data: Annotated[
        str | os.PathLike[str] | Mapping[str, ArrayLike],
        Flag("--data", metavar="DATA", heading="Data"),
    ],
    how: LoadTestOptions = DEFAULT_LOAD_TEST,
    connection: Connection = DEFAULT_CONNECTION,
) -> LoadTest:
    """Measure how a server handles load.

    Works with any server that has the TensorFlow Serving API or, with `protocol` v2, the Open
    Inference Protocol (KServe v2). With `rate`, latency is measured from the scheduled send time of
    a request, so it includes the wait behind a stalled server. No request is retried.

    Args:
        address: a gRPC address, `host:port` or `unix:path`; with `protocol="v2"` also an HTTP URL.
        model: the name of the served model.
        data: Samples to send one after another: a .npz file of arrays by input name, a folder of
            TFRecords, images or CSV files, or DIR/NAME if DIR contains records of several names.
        how: the model version, the kind of load and its duration.
        connection: the protocol, TLS and timeout of the connection.

    Error: several kinds of load are given. CallError: the server, model or version does not exist,
    or the model rejects the first request. FileError, GraphError: the data does not match.

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
    """Return the result of each load, and the highest rate within the latency limit or None."""
    if how.latency_limit is not None:
        return search(generators, how.seconds, how.latency_limit, advance)
    if how.rate is not None:
        steps = [LoadStep(how.seconds, rate=how.rate)]
    else:
        steps = [LoadStep(how.seconds, callers=item) for item in how.concurrency or _CONCURRENCY]
    return [generators.measure(step, advance) for step in steps], None
