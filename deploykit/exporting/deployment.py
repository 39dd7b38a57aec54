"""Deployment files for exported models, written next to them according to the options."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from deploykit import __version__
from deploykit.benchmarking.devices import config, in_callers_thread
from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.tuning.recommendation import check_served
from deploykit.exporting.manifests import OPENVINO_DOCKERFILE, Deployment, manifests, names
from deploykit.serving.protocol.signatures import SERVE, Tensor, read_meta_graph, signatures_of
from deploykit.serving.saved_model.write_version import models_in
from deploykit.storage.files import check_output, write
from deploykit.system.machine import usable_cores
from deploykit.transforms.common.errors import (
    CrashError,
    Error,
    GraphError,
    LimitError,
    VerificationError,
    failed,
)
from deploykit.transforms.engines.engine_folder import FOLDER as ENGINE
from deploykit.transforms.runtime.child_process import call
from deploykit.transforms.runtime.session import Session, sentence
from deploykit.transforms.runtime.tensorflow_start import start_tensorflow


def check_loads(folder: Path) -> None:
    """Open a SavedModel with both loaders, in a child process.

    VerificationError: one of them refuses it. LimitError: there is not enough memory or time.
    """
    try:
        refused = call("deploykit.exporting.deployment:refusals", str(folder))
    except CrashError as error:
        refused = [f"TensorFlow's process crashes while it loads: {error}"]
    if refused:
        raise VerificationError("export-not-loadable", reason=refused[0])


def refusals(folder: str) -> list[str]:
    """Return the error of each loader that refuses a SavedModel; runs in a child process.

    LimitError: there is not enough memory.
    """
    import tensorflow as tf

    loaders: dict[str, Callable[[], object]] = {
        "tf.compat.v1.saved_model.load": lambda: Session.of_saved_model(folder, [SERVE]),
        "tf.saved_model.load": lambda: tf.saved_model.load(folder, tags=[SERVE]),
    }
    results = []
    for name, load in loaders.items():
        try:
            load()
        except Exception as error:  # loaders raise many types, from KeyError to their own
            reason = failed("server-cannot-load", error, name=name, reason=sentence(error))
            if isinstance(reason, LimitError):
                raise reason from None
            results.append(str(reason))
    return results


def refused_in_turn(folder: str | os.PathLike[str]) -> str:
    """Return why the sequential executor refuses a SavedModel, or an empty string."""
    try:
        return str(call(f"{__name__}:_refused", os.fspath(folder)))
    except Error as error:
        return str(error)


def _refused(folder: str) -> str:
    """Load a version and prepare each signature, which is when the executor refuses graphs."""
    parts = start_tensorflow()
    signatures = signatures_of(read_meta_graph(Path(folder)))
    graph = parts.ops.Graph()
    session = parts.session.Session(graph=graph, config=config(RunConfig(executor="single")))
    try:
        with graph.as_default():
            parts.loader.load(session, [SERVE], folder)
        for signature in signatures.values():
            fetched, fed = (
                [graph.get_tensor_by_name(tensor.name) for tensor in side.values()]
                for side in (signature.outputs, signature.inputs)
            )
            in_callers_thread(session, fetched, fed)
    except (parts.errors.OpError, ValueError, KeyError, TypeError, RuntimeError) as error:
        return sentence(error)
    finally:
        session.close()
    return ""


logger = logging.getLogger("deploykit")

_MIB = 1 << 20
_SERVER_MIB = 512
_COPIES = 3  # copies of the graph during loading: file, proto, constants
_STEP_MIB = 256


@dataclass(frozen=True)
class Manifests:
    """The requested deployment files, and the settings to run the models with."""

    kinds: Sequence[str] = ()
    """Any of `config`, `docker`, `kubernetes` and `kserve`; each kind includes `config`."""
    batching: bool = False
    """Whether the server batches waiting requests."""
    settings: RunConfig = field(default_factory=RunConfig)
    """The settings from `deploykit tune`; a batch size above 1 enables batching."""
    force: bool = False
    """Whether existing files are overwritten."""
    settings_from: str = "tuned"
    """Name of the settings in messages, such as their file."""
    tuned: str | os.PathLike[str] | None = None
    """File of the settings, which must have been measured on this model."""

    @property
    def batches(self) -> bool:
        """Whether batching is enabled, by the option or by the tuned settings."""
        return self.batching or (bool(self.kinds) and self._tuned_batch)

    @property
    def _tuned_batch(self) -> bool:
        return self.settings.batch is not None and self.settings.batch > 1

    def check(self, base: Path) -> None:
        """Raise FileError before the export for a file that could not be written after it.

        GraphError: the settings apply to none of the files, or no server supports one of them.
        """
        if self.settings != RunConfig() and not (self.kinds or self.batching):
            raise GraphError("option-needs", option=self.settings_from, needed="--manifests")
        check_served(self.settings, self.settings_from, gpu=False)
        self._tell_what_is_left_out()
        if base.is_dir():
            has_session = self.settings.executor is not None
            for name in names(self.kinds, self.batches, has_session, openvino_alone=True):
                check_output(base / name, self.force)

    def check_inputs(self, inputs: Mapping[str, Tensor]) -> None:
        """Raise GraphError if batching is enabled but an input has no open batch dimension."""
        advice = "remove --batching"
        if self._tuned_batch and not self.batching:
            advice = (
                f'{self.settings_from} recommends batch {self.settings.batch}: remove "batch" from '
                "its settings, or make the batch dimension unknown"
            )
        for alias, tensor in inputs.items() if self.batches else ():
            if tensor.shape is not None and (not tensor.shape or tensor.shape[0] >= 0):
                raise GraphError(
                    "input-shape-not-batchable", alias=alias, shape=tensor.shape, advice=advice
                )

    def write(self, base: Path, version: int) -> list[Path]:
        """Write the files for all models in a folder and return their paths."""
        models = models_in(base)
        engines = [(folder / ENGINE).is_dir() for folder in models.values()]
        deployment = Deployment(
            models=list(models),
            version=version,
            cores=usable_cores(),
            memory=_memory(list(models.values())),
            settings=self.settings,
            batching=self.batches,
            session=self._has_session(models),
            openvino=any(engines),
            openvino_alone=all(engines),
            environment=self._environment(),
            deploykit=__version__,
        )
        if "docker" in self.kinds and self.force and not deployment.openvino_alone:
            (base / OPENVINO_DOCKERFILE).unlink(missing_ok=True)  # it would lack a model
        files = manifests(deployment, self.kinds)
        for name, text in files.items():
            write(base / name, [text.encode()], self.force)
        return [base / name for name in files]

    def _environment(self) -> dict[str, str]:
        """Return the environment variables of the settings that do not depend on this machine."""
        result = self.settings.environment
        result.pop("CUDA_VISIBLE_DEVICES", None)
        return {name: value for name, value in result.items() if value is not None}

    def _has_session(self, models: Mapping[str, Path]) -> bool:
        """Return whether the settings recommend the sequential executor and all models support it.

        TensorFlow Serving uses SINGLE_THREADED_EXECUTOR for that, which rejects some graphs.
        """
        if self.settings.executor is None or not self.kinds:
            return False
        for name, folder in models.items():
            if why := refused_in_turn(folder):
                logger.info(
                    "%s recommends executor %s; TensorFlow Serving cannot use it for the model "
                    "%s (%s); deploykit serve does with --tuned",
                    self.settings_from, self.settings.executor, name, why,
                )  # fmt: skip
                return False
        return True

    def _tell_what_is_left_out(self) -> None:
        """Log recommended settings that the requested files cannot contain."""
        others = replace(self.settings, batch=None, concurrency=1)
        if others != RunConfig() and not self.kinds:
            logger.info("%s recommends %s; batching.config cannot contain that, other files can "
                        "(--manifests)", self.settings_from, others)  # fmt: skip
        if self.settings.concurrency > 1 and not self.batches:
            logger.info(
                "%s recommends concurrency %d; TensorFlow Serving runs all requests at once "
                "and has no limit without --batching",
                self.settings_from, self.settings.concurrency,
            )  # fmt: skip
        if self._tuned_batch and "kserve" in self.kinds:
            logger.info(
                "%s recommends batch %d; kserve.yaml cannot include the batching parameters file "
                "that TensorFlow Serving needs for that",
                self.settings_from, self.settings.batch,
            )  # fmt: skip


def _memory(folders: Sequence[Path]) -> int:
    """Return the memory request of a server of these versions in MiB."""
    size = sum((folder / "saved_model.pb").stat().st_size for folder in folders)
    needed = _SERVER_MIB + _COPIES * size / _MIB
    return int(-(-needed // _STEP_MIB) * _STEP_MIB)
