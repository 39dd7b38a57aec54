"""What of CUDA is needed beside the libraries that TensorFlow opens: for XLA, and to trace kernels.

Without them TensorFlow sees its GPUs and runs models, until XLA is to compile one, or a profile is
to say how long its kernels take.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

CUPTI = "libcupti.so.12"
"""Traces what runs on a GPU."""
PTXAS, LIBDEVICE = "ptxas", "libdevice"
_PLACES = {PTXAS: "bin/ptxas", LIBDEVICE: "nvvm/libdevice/libdevice.10.bc"}
SYSTEM = Path("/usr/local")
_DATA_DIR = re.compile(r"--xla_gpu_cuda_data_dir=(\S+)")


def xla_tools(
    libraries: Sequence[str], variables: Mapping[str, str], cuda: str | None = None
) -> dict[str, str | None]:
    """Return where the assembler and the maths library of XLA are; None: nowhere.

    They are looked for where XLA looks: in the folder that its flag names, in NVIDIA's wheels,
    whose folders of `libraries` are given, in /usr/local/cuda of TensorFlow's version `cuda` and of
    any, and the assembler in PATH. Source: XLA, CandidateCudaRoots.
    """
    named = _DATA_DIR.search(variables.get("XLA_FLAGS", ""))
    roots = [Path(named[1])] if named else []
    roots += sorted({Path(each).parent.parent / "cuda_nvcc" for each in libraries})
    if cuda:
        roots.append(SYSTEM / f"cuda-{'.'.join(cuda.split('.')[:2])}")
    roots.append(SYSTEM / "cuda")
    found: dict[str, str | None] = {}
    for tool, place in _PLACES.items():
        there = [root / place for root in roots if (root / place).is_file()]
        found[tool] = str(there[0]) if there else None
    found[PTXAS] = found[PTXAS] or shutil.which("ptxas", path=variables.get("PATH"))
    return found
