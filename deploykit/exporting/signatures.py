"""Which signatures a model gets for the methods Predict, Classify and Regress."""

from collections.abc import Mapping, Sequence

from deploykit.exporting.class_names import best_classes
from deploykit.exporting.named_model import NamedModel
from deploykit.exporting.photo_inputs import PhotoSides
from deploykit.serving.protocol.photo_names import PIXELS, TENSORS
from deploykit.serving.protocol.signatures import (
    CLASSES,
    CLASSIFY,
    DEFAULT,
    EXAMPLES,
    PREDICT,
    REGRESS,
    RESULTS,
    SCORES,
    Tensor,
    sizes,
)
from deploykit.serving.saved_model.parse_examples import parse_in_front
from deploykit.serving.saved_model.proto import signature_def
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.protos import SignatureDef
from deploykit.transforms.core.tensors import DType

METHODS = {"predict": PREDICT, "classify": CLASSIFY, "regress": REGRESS}


def signatures_for(
    callee: NamedModel,
    method: str | None,
    photos: PhotoSides | None = None,
    labels: Sequence[str] = (),
) -> dict[str, SignatureDef]:
    """Return the signatures by name; the graph is made to take tf.Examples where it has to.

    With photos in front, the default one takes them as files. With labels, what is called by
    default also gives the best classes by name.
    """
    own = METHODS["predict"] if method == "predict" else callee.method
    signatures = {
        other.signature: signature_def(other.method, other.inputs, other.outputs)
        for other in callee.others
    }
    signatures[callee.signature] = signature_def(own, callee.inputs, callee.outputs)
    signatures.setdefault(DEFAULT, signatures[callee.signature])
    named = best_classes(callee, _scores(callee), labels) if labels else {}
    outputs = {**callee.outputs, **named}
    if photos is not None:
        _check_free(signatures, TENSORS, PIXELS)
        signatures[TENSORS] = signature_def(own, callee.inputs, callee.outputs)
        signatures[DEFAULT] = signature_def(PREDICT, photos.files, outputs)
        signatures[PIXELS] = signature_def(PREDICT, photos.pixels, outputs)
    elif named:
        signatures[DEFAULT] = signature_def(own, callee.inputs, outputs)
    if photos is not None and named and method is None and "classify" not in signatures:
        method = "classify"
    if method in ("classify", "regress") and own != METHODS[method]:
        if own != PREDICT:
            raise GraphError(
                "signature-has-method",
                signature=callee.signature,
                present=own.rsplit("/", 1)[1],
                method=method,
            )
        _check_free(signatures, method)
        chosen = _predicted(callee) if method == "regress" else named or _scored(callee)
        inputs = callee.inputs if photos is None else photos.files
        taken = Tensor(f"{parse_in_front(callee.graph, inputs)}:0", DType("string"), (-1,))
        signatures[method] = signature_def(METHODS[method], {EXAMPLES: taken}, chosen)
    for name, each in signatures.items():
        if not each.outputs:
            raise GraphError("signature-without-outputs", name=name)
    return signatures


def _check_free(signatures: Mapping[str, SignatureDef], *names: str) -> None:
    """Raise GraphError where a signature has one of these names already."""
    for name in names:
        if name in signatures:
            raise GraphError("signature-exists", name=name)


def _scores(callee: NamedModel) -> Tensor:
    """Return the output that gives a score for each class."""
    found = _fitting(callee, "float32", SCORES, ranks=(2,))
    if found is None:
        raise GraphError("labels-need-scores", outputs=_said(callee.outputs))
    return found


def _scored(callee: NamedModel) -> dict[str, Tensor]:
    """Return the outputs of Classify: classes as strings, scores as floats, [batch, classes]."""
    found = {}
    for alias, dtype in ((CLASSES, "string"), (SCORES, "float32")):
        fitting = _fitting(callee, dtype, alias, ranks=(2,))
        if fitting is not None:
            found[alias] = fitting
    if not found:
        raise GraphError("classify-output", outputs=_said(callee.outputs))
    shapes = {each.shape for each in found.values() if each.shape is not None}
    if len(shapes) > 1:
        raise GraphError("classify-outputs-differ", found=_said(found))
    return found


def _predicted(callee: NamedModel) -> dict[str, Tensor]:
    """Return the output of Regress: one float a sample."""
    found = _fitting(callee, "float32", RESULTS, ranks=(1, 2))
    if found is None or (found.shape is not None and found.shape[1:] not in ((), (1,), (-1,))):
        raise GraphError("regress-output", outputs=_said(callee.outputs))
    return {RESULTS: found}


def _fitting(callee: NamedModel, dtype: str, alias: str, ranks: tuple[int, ...]) -> Tensor | None:
    """Return the output of a type and rank: that of the alias, or the only one."""
    fitting = {
        name: each
        for name, each in callee.outputs.items()
        if each.dtype == dtype and (each.shape is None or len(each.shape) in ranks)
    }
    if alias in fitting:
        return fitting[alias]
    if len(fitting) > 1:
        raise GraphError(
            "method-outputs-ambiguous", count=len(fitting), alias=alias, outputs=_said(fitting)
        )
    return next(iter(fitting.values()), None)


def _said(tensors: Mapping[str, Tensor]) -> list[str]:
    return [f"{alias} ({each.dtype}{sizes(each)})" for alias, each in tensors.items()]
