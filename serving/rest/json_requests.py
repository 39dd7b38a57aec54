"""Documents of calls -> arrays or examples; the same where the server reads them and in a child."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from deploykit.serving.protocol.errors import ServingError, refused
from deploykit.serving.protocol.signatures import DEFAULT, Tensor
from deploykit.serving.rest.json_documents import parse
from deploykit.serving.rest.json_examples import read_examples
from deploykit.serving.rest.json_infer import InferDocument, binary_arrays, read_infer
from deploykit.serving.rest.json_tensors import read_inputs
from deploykit.serving.rest.json_values import signature_name
from deploykit.transforms.core.tensors import Array

Inputs = Mapping[str, Mapping[str, Tensor]]
"""What each signature of a model takes, by its name."""


@dataclass(frozen=True)
class Document:
    """What a call asks."""

    signature: str
    """Empty: it names none."""
    inputs: Mapping[str, Array] = field(default_factory=dict)
    rows: bool = False
    """Whether the inputs came in rows."""
    examples: Sequence[bytes] = ()
    infer: InferDocument = field(default_factory=InferDocument)
    """What a document of the Open Inference Protocol asks beside its inputs."""


def read(
    method: str, body: bytes | bytearray | memoryview, taken: Inputs | ServingError
) -> Document:
    """Return what the body of a call of a method asks, of a model whose signatures take this.

    ServingError: it is no such document; or the one that stands in the model's place.
    """
    document = parse(body, last_feature=method in ("classify", "regress"))
    if method == "infer":
        name, arrays, infer = read_infer(document)
        return Document(name, arrays, infer=infer)
    signature = signature_name(document)
    if method != "predict":
        return Document(signature, examples=read_examples(document))
    if isinstance(taken, ServingError):
        raise taken
    name = signature or DEFAULT
    if name not in taken:
        raise refused("json-signature-missing", name=name)
    inputs, rows = read_inputs(document, taken[name])
    return Document(signature, inputs, rows)


def with_content(document: Document, content: memoryview) -> Document:
    """Return a document with the inputs whose binary data follows it. ServingError: wrong sizes."""
    found = binary_arrays(document.infer.binary_inputs, content)
    return replace(document, inputs={**document.inputs, **found}) if found else document
