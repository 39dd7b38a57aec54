"""Files that run exported models elsewhere, written beside them as a user's options say."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from deploykit import __version__
from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.tuning.recommendation import check_served
from deploykit.exporting.loaders import refused_in_turn
from deploykit.exporting.manifests import OPENVINO_DOCKERFILE, Deployment, manifests, names
from deploykit.serving.protocol.signatures import Tensor
from deploykit.serving.saved_model.write_version import models_in
from deploykit.storage.files import check_output, write
from deploykit.system import allocators
from deploykit.system.machine import usable_cores
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.engines.engine_folder import FOLDER as ENGINE

logger = logging.getLogger("deploykit")

_MIB = 1 << 20
_SERVER_MIB = 512
_COPIES = 3  # of the graph while it is loaded: the file, the proto, the constants
_STEP_MIB = 256


@dataclass(frozen=True)
class Manifests:
    """Which files are asked for, and how the models are to be run."""

    kinds: Sequence[str] = ()
    """Of `config`, `docker`, `kubernetes` and `kserve`; those of `config` go with any other."""
    batching: bool = False
    """Whether requests that wait are put together."""
    settings: RunConfig = field(default_factory=RunConfig)
    """What `deploykit tune` found to be fast; a batch above one turns batching on."""
    force: bool = False
    """Whether existing files are replaced."""
    settings_from: str = "tuned"
    """What the settings are called in a message, such as their file."""
    tuned: str | os.PathLike[str] | None = None
    """The file that holds the settings, which must have been measured on the model."""

    @property
    def batches(self) -> bool:
        """Whether requests that wait are put together, also because it was found to be fast."""
        return self.batching or (bool(self.kinds) and self._tuned_batch)

    @property
    def _tuned_batch(self) -> bool:
        return self.settings.batch is not None and self.settings.batch > 1

    def check(self, base: Path) -> None:
        """Raise FileError now for a file that could not be written when the version is.

        GraphError: the settings are for no file, or no server has one of them.
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
        """Raise GraphError if requests cannot be put together."""
        advice = "leave out --batching"
        if self._tuned_batch and not self.batching:
            advice = (
                f'{self.settings_from} recommends batch {self.settings.batch}: take "batch" out of '
                "its settings, or open the batch"
            )
        for alias, tensor in inputs.items() if self.batches else ():
            if tensor.shape is not None and (not tensor.shape or tensor.shape[0] >= 0):
                raise GraphError(
                    "input-shape-not-batchable", alias=alias, shape=tensor.shape, advice=advice
                )

    def write(self, base: Path, version: int) -> list[Path]:
        """Write the files for all models in a folder, and return their paths."""
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
        has_tcmalloc = self.settings.allocator == "tcmalloc"
        if deployment.openvino and has_tcmalloc and "docker" in self.kinds:
            words = "%s recommends tcmalloc, under which OpenVINO ends: not in Dockerfile.deploykit"
            logger.info(words, self.settings_from)
        if "docker" in self.kinds and self.force and not deployment.openvino_alone:
            (base / OPENVINO_DOCKERFILE).unlink(missing_ok=True)  # it lacks a model now
        files = manifests(deployment, self.kinds)
        for name, text in files.items():
            write(base / name, [text.encode()], self.force)
        return [base / name for name in files]

    def _environment(self) -> dict[str, str]:
        """Return the variables of the settings that are not of this machine."""
        result = replace(self.settings, allocator=None).environment
        result.pop("CUDA_VISIBLE_DEVICES", None)
        if self.settings.allocator == "huge-pages":
            result |= allocators.variables("huge-pages", {})
        return {name: value for name, value in result.items() if value is not None}

    def _has_session(self, models: Mapping[str, Path]) -> bool:
        """Say whether TensorFlow Serving can run ops one by one, as is recommended, in all models.

        It has an executor of TensorFlow's for that, which does not take every graph.
        """
        if self.settings.executor is None or not self.kinds:
            return False
        for name, folder in models.items():
            if why := refused_in_turn(folder):
                logger.info(
                    "%s recommends executor %s; TensorFlow Serving cannot have it for the model "
                    "%s (%s), and deploykit serve takes it from --tuned",
                    self.settings_from, self.settings.executor, name, why,
                )  # fmt: skip
                return False
        return True

    def _tell_what_is_left_out(self) -> None:
        """Say what is recommended and cannot be written into the files that are asked for."""
        others = replace(self.settings, batch=None, concurrency=1)
        if others != RunConfig() and not self.kinds:
            logger.info("%s recommends %s; batching.config cannot hold that, other files can "
                        "(--manifests)", self.settings_from, others)  # fmt: skip
        if self.settings.concurrency > 1 and not self.batches:
            logger.info(
                "%s recommends %d in flight; TensorFlow Serving computes all calls that come, and "
                "has no flag for that without --batching",
                self.settings_from, self.settings.concurrency,
            )  # fmt: skip
        if self._tuned_batch and "kserve" in self.kinds:
            logger.info(
                "%s recommends batch %d; kserve.yaml cannot bring the file of parameters that "
                "TensorFlow Serving needs for that",
                self.settings_from, self.settings.batch,
            )  # fmt: skip


def _memory(folders: Sequence[Path]) -> int:
    """Return how many MiB a server of these versions asks for."""
    size = sum((folder / "saved_model.pb").stat().st_size for folder in folders)
    needed = _SERVER_MIB + _COPIES * size / _MIB
    return int(-(-needed // _STEP_MIB) * _STEP_MIB)
