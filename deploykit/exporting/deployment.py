"""Files that run exported models elsewhere, written beside them as a user's options say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from deploykit.benchmarking.settings import Settings
from deploykit.exporting.manifests import Deployment, manifests, names
from deploykit.hardware.machine import usable_cores
from deploykit.serving.protocol.signatures import Tensor
from deploykit.serving.saved_model.write_version import models_in
from deploykit.storage.files import check_output, write
from deploykit.transforms.core.errors import GraphError

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
    settings: Settings = field(default_factory=Settings)
    """What `deploykit tune` found to be fast."""
    force: bool = False
    """Whether existing files are replaced."""

    def check(self, base: Path) -> None:
        """Raise FileError now for a file that could not be written when the version is."""
        if base.is_dir():
            for name in names(self.kinds, self.batching):
                check_output(base / name, self.force)

    def check_inputs(self, inputs: Mapping[str, Tensor]) -> None:
        """Raise GraphError if requests cannot be put together."""
        for alias, tensor in inputs.items() if self.batching else ():
            if tensor.shape is not None and (not tensor.shape or tensor.shape[0] >= 0):
                raise GraphError(
                    f"input '{alias}' has the shape {list(tensor.shape)}, so requests cannot be "
                    "put together; leave out --batching"
                )

    def write(self, base: Path, version: int) -> list[Path]:
        """Write the files for all models in a folder, and return their paths."""
        models = models_in(base)
        settings = {k: v for k, v in self.settings.environment.items() if v is not None}
        settings.pop("CUDA_VISIBLE_DEVICES", None)  # of this machine
        deployment = Deployment(
            models=list(models),
            version=version,
            cores=usable_cores(),
            memory=_memory(list(models.values())),
            batching=self.batching,
            batch=self.settings.batch,
            threads=self.settings.threads,
            environment=settings,
            deploykit=metadata.version("deploykit"),
        )
        files = manifests(deployment, self.kinds)
        for name, text in files.items():
            write(base / name, [text.encode()], self.force)
        return [base / name for name in files]


def _memory(folders: Sequence[Path]) -> int:
    """Return how many MiB a server of these versions asks for."""
    size = sum((folder / "saved_model.pb").stat().st_size for folder in folders)
    needed = _SERVER_MIB + _COPIES * size / _MIB
    return int(-(-needed // _STEP_MIB) * _STEP_MIB)
