"""What a served model answers."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from numpy.typing import ArrayLike

from deploykit.api.public import Command, public
from deploykit.calling.call_options import TOP, PredictOptions
from deploykit.calling.model_clients import chosen_of, model_client
from deploykit.calling.request_inputs import arrays_from
from deploykit.calling.response import classes, names_themselves, values
from deploykit.photos.class_names import labels_from
from deploykit.serving.client.connection import DEFAULT_CONNECTION, Connection
from deploykit.serving.client.inference_client import UNNAMED
from deploykit.text.progress import working
from deploykit.transforms.core.display.as_html import AsHtml
from deploykit.transforms.core.display.documents import Hidden, Written
from deploykit.transforms.core.display.flag import Flag
from deploykit.transforms.core.tensors import Array

DEFAULT = PredictOptions()


@dataclass(frozen=True)
class Prediction(AsHtml):
    """What a served model answered."""

    address: str
    model: str
    signature: str
    inputs: Hidden[Mapping[str, Array]]
    """What was sent."""
    outputs: Annotated[Mapping[str, Array], Written("values", by=values)]
    classes: Annotated[
        Sequence[Sequence[Mapping[str, Any]]] | None, Written("predictions", if_set=True)
    ] = None
    """The best classes of each sample, best first: class, label, score; None: nobody asked."""
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """What became of files on the way to each input, in words."""
    sources: Hidden[tuple[str, ...]] = ()
    """Where each of several samples comes from, where texts were given, one for each."""


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
    itself (deploykit export `preprocess`), the image file is sent as it is. Otherwise it is decoded
    and resized before sending, as in `deploykit calibrate` and `benchmark`.

    Args:
        address: `host:port` of gRPC, or `unix:path`; with `protocol="v2"` also a URL of HTTP.
        model: the name under which it is served.
        inputs: by name, an array or nested list as the signature takes it, where the axis of the
            batch may be left out; a text, for an input of texts; or the path of a `.npy` file or of
            an image, which is decoded and resized as `calibrate` and `benchmark` do it. For an
            input of texts, or of photos as files, a `pathlib.Path` is a file whose bytes are sent.
            Or a list of `[NAME=]VALUE`, as the command line takes it.
        how: which version and signature are asked, and what is shown.
        connection: how the server is spoken to.

    CallError: there is no such server, model or version, or the model refuses the inputs.
    FileError, GraphError: an input is missing or not known, or what is given does not fit it.

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
    asked: Any = {"version": how.version, "label": how.version_label}
    with working("predict"), model_client(address, connection) as client:
        signature, chosen = chosen_of(client, model, how.signature, inputs, **asked)
        arrays, fed = arrays_from(inputs, chosen, how.preprocess)
        outputs = client.predict(model, arrays, signature=signature, outputs=how.outputs, **asked)
    best = None
    if names is not None or how.top is not None or names_themselves(outputs):
        best = classes(outputs, names, how.top or TOP)
    sources = () if isinstance(inputs, Mapping | str) else tuple(map(str, inputs))
    if best is None or not 1 < len(sources) == len(best):
        sources = ()
    named = signature or UNNAMED
    return Prediction(address, model, named, arrays, outputs, best, fed, sources)
