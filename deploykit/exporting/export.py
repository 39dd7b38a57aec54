"""Export of a trained model as a version for TensorFlow Serving, with its signatures."""

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from deploykit import __version__
from deploykit.benchmarking.results import check_tuned
from deploykit.data.preprocessing import (
    Preprocessing,
    declared_for,
    refuse_batch_axes,
    with_batch_axes,
    with_header,
)
from deploykit.exporting.deployment import Manifests, check_loads
from deploykit.exporting.engine_part import EnginePart, engine_part, in_tensorflow, samples_of
from deploykit.exporting.named_model import (
    NamedModel,
    open_named_model,
    signature_names,
    with_aliases,
    with_copied_inputs,
    with_names,
)
from deploykit.exporting.photo_inputs import MAX_PIXELS, PhotoSides, photos_in_front
from deploykit.exporting.request_sample import SAMPLE, called, request_command, request_sample
from deploykit.exporting.signatures import (
    KNOWN,
    Dataset,
    aliases_of,
    samples_for,
    signatures_for,
    warm_up,
)
from deploykit.importers.metadata_file import about
from deploykit.importers.model_path import locate
from deploykit.importers.model_source import ModelSource
from deploykit.importers.open_model import OpenedModel
from deploykit.serving.protocol.signatures import (
    CLASSES,
    DEFAULT,
    LABELS,
    PREDICT,
    PROVENANCE,
    TENSORS,
    described,
    sizes,
)
from deploykit.serving.saved_model.proto import saved_model
from deploykit.serving.saved_model.warmup_requests import FILE as WARM_UP
from deploykit.serving.saved_model.warmup_requests import MOST, USUAL
from deploykit.serving.saved_model.write_version import check_free, check_name, write_version
from deploykit.storage.csv_files import HeaderRule
from deploykit.storage.files import check_output_folder
from deploykit.storage.parameters import takes_former_names
from deploykit.transforms.common.documents import (
    AsHtml,
    Hidden,
    IfSet,
    Written,
    converted,
    document,
    head,
    written,
)
from deploykit.transforms.common.errors import Error, GraphError
from deploykit.transforms.common.flag import ALLOW_OP, COLUMNS, HEADER, MAX_INT64, Flag
from deploykit.transforms.common.messages import shell_command
from deploykit.transforms.engines.engine_folder import files as engine_files
from deploykit.transforms.engines.engines import TENSORFLOW, version_of
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import normal
from deploykit.transforms.ir.protos import SignatureDef
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.untrusted.files import read_json, sha256_of
from deploykit.verification.chosen_columns import check_columns
from deploykit.verification.samples import DataLike, PreprocessLike
from deploykit.verification.synthetic.sample_inputs import batch_axes

logger = logging.getLogger("deploykit")


@dataclass(frozen=True)
class FileDigest:
    """The SHA-256 and size of contents in bytes."""

    sha256: str = ""
    bytes: int | None = None


@dataclass(frozen=True)
class Provenance:
    """The origin of a version, as stored in the version itself."""

    HEAD: ClassVar = head("export")

    source: FileDigest
    versions: Mapping[str, str | None] = field(
        default_factory=lambda: {"deploykit": __version__, "tensorflow": version_of(TENSORFLOW)}
    )
    signatures: Mapping[str, Any] = field(default_factory=dict)
    """Signatures by name, as returned by `described`."""
    batch_axes: IfSet[Mapping[str, Mapping[str, int]]] = field(default_factory=dict)
    """Axis of the samples by signature and input, for inputs where it is not the first."""
    warm_up_requests: int = 0
    saved_model: FileDigest = FileDigest()

    def written(self) -> list[bytes]:
        """Return the contents of the file."""
        return [f"{json.dumps(document(self), indent=2)}\n".encode()]


def file_digest(pieces: Iterable[bytes]) -> FileDigest:
    """Return the digest of the concatenated pieces."""
    result, size = hashlib.sha256(), 0
    for piece in pieces:
        result.update(piece)
        size += len(piece)
    return FileDigest(result.hexdigest(), size)


def exported_from(folder: Path) -> str:
    """Return the SHA-256 of the model that a version folder was exported from.

    It is an empty string if it is unknown or if `saved_model.pb` was replaced since.
    """
    try:
        result = converted(read_json(folder / PROVENANCE, "description of a version"), Provenance)
        written = sha256_of(folder / "saved_model.pb")
    except Error:
        return ""
    return result.source.sha256 if result.saved_model.sha256 == written else ""


STEPS = "assets.extra/preprocessing.json"


@dataclass(frozen=True)
class Exported(AsHtml):
    """An exported version directory."""

    model: Hidden[OpenedModel]
    folder: Hidden[Path]
    name: str
    version: int
    signatures: Annotated[Mapping[str, SignatureDef], Written(by=described)]
    warm_up_requests: int
    bytes: Hidden[int]
    manifests: Sequence[Path] = ()
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """Description of the preprocessing of files, by input."""
    engine: EnginePart = field(default_factory=EnginePart)
    """The part of it that OpenVINO runs."""

    @property
    def sample(self) -> Path | None:
        """The stored sample of a request, or None."""
        path = self.folder / SAMPLE
        return path if path.is_file() else None

    @property
    def sample_signature(self) -> str | None:
        """The signature that the sample is for, if a request must name it."""
        name = called(self.signatures)
        return None if name == DEFAULT or len(self.signatures) == 1 else name

    @property
    @written()
    def commands(self) -> list[dict[str, str]]:
        """Commands to serve the models of the folder, and to send a request."""
        serve = shell_command("deploykit", "serve", os.fspath(self.folder.parent.parent))
        request = request_command(self.name, self.sample, self.sample_signature)
        return [
            {"what": "serve the model", "command": serve},
            {"what": "send a request", "command": request},
        ]


@takes_former_names
@dataclass(frozen=True)
class ExportOptions:
    """Options of a version for TensorFlow Serving."""

    HEADING: ClassVar = "Version"

    name: Annotated[str | None, Flag(metavar="NAME")] = None
    """The model's name in requests [default: the name of its file or folder]."""
    version: Annotated[int | None, Flag(at_least=0, at_most=MAX_INT64)] = None
    """Version number, which must not exist yet [default: one above the highest]."""
    signature_name: Annotated[
        str | Sequence[str] | None, Flag(format="names", metavar="NAME[,NAME...]")
    ] = None
    """Name of the signature for clients; several names get the same inputs and outputs [default:
    serving_default]."""
    input_aliases: Annotated[Mapping[str, str], Flag("--input-alias", format="alias")] = field(
        default_factory=dict
    )
    """Name of an input for clients; TENSOR is a tensor or the current name of the input. May be
    repeated."""
    output_aliases: Annotated[Mapping[str, str], Flag("--output-alias", format="alias")] = field(
        default_factory=dict
    )
    """The same for an output."""
    method: Literal["predict", "classify", "regress"] | None = None
    """classify and regress add a signature of that name that takes tf.Examples; the signature that
    takes tensors is kept [default: that of the SavedModel's signature, or predict]."""
    warmup: Annotated[DataLike | None, Flag(metavar="DATA", heading="Data")] = None
    """Samples that the server runs before the version answers its first request: a .npz file of
    arrays by input name, a folder of TFRecords, images or CSV files, or DIR/NAME if DIR contains
    records of several names."""
    warmup_samples: Annotated[int, Flag(at_most=MOST, heading="Data")] = USUAL
    """Number of these samples to store, at most 1000: evenly spread over arrays, or the first ones
    of files."""
    preprocess: Annotated[
        PreprocessLike | None, Flag(metavar="FILE.json|LO..HI|known", heading="Images and classes")
    ] = None
    """Add image preprocessing to the model (decoding, resizing, value range), so that clients send
    image files. Takes the same values as `preprocess` of calibrate and benchmark, or known: the
    preprocessing stored with the model."""
    warmup_preprocess: Annotated[
        PreprocessLike | None, Flag(metavar="FILE.json|LO..HI|known", heading="Data")
    ] = None
    """Preprocessing of the files of `warmup`, in the same format as for calibrate and benchmark
    [default: that of `preprocess`, or of the model]."""
    header: Annotated[HeaderRule, HEADER] = "auto"
    columns: Annotated[Mapping[str, str], COLUMNS] = field(default_factory=dict)
    labels: Annotated[
        str | os.PathLike[str] | Sequence[str] | None, Flag(heading="Images and classes")
    ] = None
    """File with the class names, one per line; responses then name the best 5 classes [default with
    `preprocess`: from the model metadata file]."""
    max_pixels: Annotated[int, Flag(formerly="most_pixels", heading="Images and classes")] = (
        MAX_PIXELS
    )
    """Refuse images with more pixels before they are decoded."""
    manifests: Annotated[Manifests, Flag(is_python_only=True)] = field(default_factory=Manifests)
    """Files for other platforms, written into the folder of models."""
    engine: Literal["auto", "tensorflow", "openvino"] | None = None
    """openvino: also write the OpenVINO model for deploykit serve `engine`, and fail if any output
    differs from TensorFlow; auto: write it only if all outputs match [default: auto for a graph of
    deploykit quantize `engine` openvino, else tensorflow]."""
    allow_ops: Annotated[Sequence[str], ALLOW_OP] = ()
    """Allow this op, which acts on files, the network or processes; may be repeated."""
    sample_warmup: Annotated[bool, Flag(is_python_only=True)] = True
    """Whether the stored sample of a request may be the first of `warmup`; else it is synthetic."""


def export_model(source: ModelSource, base_dir: str | Path, how: ExportOptions) -> Exported:
    """Write a model to `base_dir/name/version/`; it has the arguments and errors of `export`."""
    names = signature_names(how.signature_name)
    base = Path(base_dir)
    name = check_name(how.name or default_name(source.model))
    check_output_folder(base / name)
    how.manifests.check(base)
    check_free(base / name, how.version)
    opened, callee = open_named_model(source)
    callee = with_aliases(callee, how.input_aliases, how.output_aliases)
    callee = with_copied_inputs(callee)
    for item in (opened, replace(opened, graph=callee.graph)):  # the second has all signatures
        item.refuse_effects(how.allow_ops)
    how.manifests.check_inputs(callee.inputs)
    origin = _origin(opened, how.manifests)  # before the graph is changed
    inputs, axes = _inputs(callee, how)
    plain = replace(callee, graph=callee.graph.copy())
    callee = in_tensorflow(callee)
    photos = _photos(callee, inputs, how)
    assert not isinstance(how.labels, str | os.PathLike)  # the public API has read the file
    labels = how.labels or (_known_labels(callee) if photos else ())
    signatures = signatures_for(callee, how.method, photos, labels)
    signatures, renamed = with_names(signatures, names, callee.signature)
    samples = None
    check_columns(how.columns, how.warmup, "--warmup")
    if how.warmup is not None:
        steps = how.preprocess if how.warmup_preprocess is None else how.warmup_preprocess
        steps = with_header(None if steps == KNOWN else steps, how.header, how.columns)
        samples = samples_for(how.warmup, callee, inputs, steps, photos)
    given = _of_the_model(samples, callee)
    if samples is not None:
        samples = renamed.get(samples[0], samples[0]), *samples[1:]
    part = engine_part(how.engine, plain, signatures, given, callee.graph)
    result, fed = _warm_up(name, samples, signatures, how)
    model_file = saved_model(callee.graph, signatures)
    digest = file_digest(model_file)
    made_of = Provenance(
        origin, signatures=described(signatures), warm_up_requests=len(result), saved_model=digest
    )
    files: dict[str, Iterable[bytes]] = {
        "saved_model.pb": model_file,
        "variables/": (),  # empty, as TensorFlow writes it: all values are in the graph
        PROVENANCE: replace(made_of, batch_axes=axes_in(signatures, axes)).written(),
    }
    request = request_sample(plain, signatures, photos, samples if how.sample_warmup else None)
    if request is not None:
        files[SAMPLE] = [request]
    if part.content is not None:
        files |= engine_files(part.content, digest.sha256)
    if result:
        files[WARM_UP] = result
    files |= _of_images(photos, labels)
    if photos is not None:
        fed = {**fed, **photos.fed}
    folder = write_version(base, name, files, how.version, check_loads)
    number, total = int(folder.name), sum(len(p) for pieces in files.values() for p in pieces)
    manifests = how.manifests
    beside = manifests.write(base, number) if manifests.kinds or manifests.batching else ()
    return Exported(opened, folder, name, number, signatures, len(result), total, beside, fed, part)


def _origin(opened: OpenedModel, manifests: Manifests) -> FileDigest:
    """Return the digest of the model. GraphError: the settings are those of another model."""
    result = FileDigest(opened.sha256, opened.bytes)
    if opened.bytes is None:
        result = file_digest(opened.graph.serialized())
    if manifests.tuned is not None:
        check_tuned(manifests.tuned, {opened.source: result.sha256})
    return result


def _inputs(callee: NamedModel, how: ExportOptions) -> tuple[Graph, dict[str, int]]:
    """Return a graph of the inputs by alias, and the axis of samples by tensor if it is not 0.

    The model's metadata or the preprocessing of the warm-up samples states it. GraphError: the
    options need the samples on the first axis.
    """
    inputs = aliases_of(callee)
    steps = None if how.warmup_preprocess == KNOWN else how.warmup_preprocess
    if how.manifests.batches:
        advice = "Remove --batching, and batch from the settings of tune."
        refuse_batch_axes(inputs, steps, "batching on the server", advice)
    if how.method in ("classify", "regress"):
        advice = "Use --method predict."
        refuse_batch_axes(inputs, steps, "a signature of tf.Examples", advice)
    by_alias = batch_axes(with_batch_axes(inputs, steps)[0])
    stated = {callee.inputs[alias].name: axis for alias, axis in by_alias.items()}
    axes = batch_axes(callee.graph) | stated
    return inputs, {normal(tensor): axis for tensor, axis in axes.items()}


def axes_in(
    signatures: Mapping[str, SignatureDef], axes: Mapping[str, int]
) -> dict[str, dict[str, int]]:
    """Return the axes of samples, which are by tensor, by signature and input."""
    results = {
        name: {a: axes[t] for a, i in signature.inputs.items() if (t := normal(i.name)) in axes}
        for name, signature in sorted(signatures.items())
    }
    return {name: known for name, known in results.items() if known}


def _photos(callee: NamedModel, inputs: Graph, how: ExportOptions) -> PhotoSides | None:
    """Add the requested image preprocessing to the model; None: none is requested."""
    if how.preprocess is None:
        return None
    given = None if how.preprocess == KNOWN else how.preprocess
    photos = None
    if callee.method == PREDICT:
        photos = photos_in_front(callee, inputs, declared_for(inputs, given), how.max_pixels)
    if photos is None:
        raise GraphError("photos-without-input", inputs=_said(callee))
    refuse_batch_axes(inputs, given, "a model of image files")
    return photos


def _of_images(photos: PhotoSides | None, labels: Sequence[str]) -> dict[str, Iterable[bytes]]:
    """Return the files of class names and image preprocessing by name."""
    files: dict[str, Iterable[bytes]] = {}
    if labels:
        files[LABELS] = [f"{label}\n".encode() for label in labels]
    if photos is not None:
        declared = Preprocessing({k: replace(v, feature="") for k, v in photos.steps.items()})
        files[STEPS] = [f"{json.dumps(document(declared), indent=2)}\n".encode()]
    return files


def _said(callee: NamedModel) -> list[str]:
    return [f"{a} ({t.dtype}{sizes(t)})" for a, t in callee.inputs.items()]


def _known_labels(callee: NamedModel) -> Sequence[str]:
    """Return the class names from the model's metadata if they fit the scores."""
    labels = about(callee.graph).labels
    fitting = [
        output
        for output in callee.outputs.values()
        if output.dtype == "float32"
        and output.shape is not None
        and output.shape[1:] == (len(labels),)
    ]
    if labels and len(fitting) != 1:
        logger.warning(
            "the exported model returns no class names: %d outputs could be the scores of the %d "
            "classes; name one with --outputs",
            len(fitting),
            len(labels),
        )
    return labels if len(fitting) == 1 and CLASSES not in callee.outputs else ()


def _warm_up(
    name: str,
    samples: Dataset | None,
    signatures: Mapping[str, SignatureDef],
    how: ExportOptions,
) -> tuple[list[bytes], Mapping[str, str]]:
    """Return serialized warm-up requests and the description of file preprocessing."""
    if samples is None:
        return [], {}
    chosen, feeds, fed = samples
    if how.method is not None and how.method in signatures and chosen != TENSORS:
        chosen = how.method
    return warm_up(name, signatures, chosen, feeds, how.warmup_samples), fed


def _of_the_model(samples: Dataset | None, callee: NamedModel) -> Mapping[str, Array] | None:
    """Return the first samples by alias if they are inputs of the model itself, else None."""
    if samples is None or samples[0] not in (callee.signature, TENSORS):
        return None
    return samples_of(samples[1])


def default_name(model: Any) -> str:
    """Return the default name of a model in requests: the name of its file or folder."""
    if not isinstance(model, str | os.PathLike):
        name = getattr(model, "name", None) or getattr(model, "__name__", None)
        return name if isinstance(name, str) else "model"
    location = locate(model)
    if location.name:
        return location.name
    path = location.path.absolute()
    if location.kind == "checkpoint" and location.checkpoint is not None:
        return (location.checkpoint.base or path.name).split(".")[0] or path.parent.name
    if location.kind == "saved_model":
        is_version = path.name.isdigit()  # the parent folder has the model's name
        return (path.parent if is_version else path).name
    return path.name.split(".")[0]
