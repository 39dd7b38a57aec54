"""Diagnosis of a machine: CPU, TensorFlow's build and settings, and why no GPU is found."""

import ctypes
import importlib
import importlib.util
import os
import re
import shutil
import site
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypedDict

from deploykit.system.machine import environment, machine, versions
from deploykit.transforms.common.errors import Error
from deploykit.transforms.engines.packages import installed_extras
from deploykit.transforms.runtime.child_process import Worker, limits

LIBRARIES = (
    "libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11",
    "libcusolver.so.11", "libcusparse.so.12", "libcudnn.so.9",
)  # fmt: skip
"""TensorFlow needs all of these libraries to use a GPU."""
DRIVER = "libcuda.so.1"
CUPTI = "libcupti.so.12"
"""TensorFlow traces GPUs with this library; it runs models without it."""
PTXAS, LIBDEVICE = "ptxas", "libdevice"
_PLACES = {PTXAS: "bin/ptxas", LIBDEVICE: "nvvm/libdevice/libdevice.10.bc"}
_SYSTEM = Path("/usr/local")
_DATA_DIR = re.compile(r"--xla_gpu_cuda_data_dir=(\S+)")
_CODES = {
    100: "no device",
    101: "a device that is not valid",
    803: "a driver too old for this CUDA library",
    804: "a CUDA library too new for this hardware",
    999: "an unknown error",
}
_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"


class MachineMetadata(TypedDict):
    """Result of `deploykit doctor --json`."""

    machine: dict[str, Any]
    extras: dict[str, bool]
    tensorflow: dict[str, Any]
    onednn: dict[str, Any]
    threads: dict[str, int]
    environment: dict[str, str]
    gpu: dict[str, Any]


def examine() -> MachineMetadata:
    """Return the machine, TensorFlow, its effective settings and the GPU, as plain data."""
    tensorflow = _in_child("tensorflow_metadata")
    driver = _in_child("driver_metadata")
    libraries = _in_child("load", LIBRARIES, _pip_folders())
    cupti = _in_child("load", (CUPTI,), _pip_folders())
    tools = xla_tools(_pip_folders(), os.environ, tensorflow.get("cuda_version"))
    result = machine()
    threads = len(result["affinity"] or ()) or result["cpus"]
    return {
        "machine": result,
        "extras": installed_extras(),
        "tensorflow": tensorflow,
        "onednn": {
            "on": tensorflow.get("onednn"),
            "why": f"{_ONEDNN}={os.environ[_ONEDNN]}" if _ONEDNN in os.environ else "default",
        },
        "threads": {
            "intra": _number("TF_NUM_INTRAOP_THREADS") or threads,
            "inter": _number("TF_NUM_INTEROP_THREADS") or threads,
        },
        "environment": environment(),
        "gpu": {
            "seen": tensorflow.get("gpus", []),
            "driver": driver,
            "libraries": libraries,
            "tools": tools,
            "cupti": cupti.get(CUPTI, cupti.get("error")),
            "refusal": refusal(tensorflow, driver, libraries, os.environ, versions()),
        },
    }


def _number(variable: str) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else 0


def gpu_refusal() -> str | None:
    """Return why TensorFlow finds no GPU, and how to fix it; None: it finds one."""
    tensorflow = _in_child("tensorflow_metadata")
    if tensorflow.get("gpus"):
        return None
    driver = _in_child("driver_metadata")
    libraries = _in_child("load", LIBRARIES, _pip_folders())
    return refusal(tensorflow, driver, libraries, os.environ, versions())


def refusal(
    tensorflow: Mapping[str, Any],
    driver: Mapping[str, Any],
    libraries: Mapping[str, str | None],
    variables: Mapping[str, str],
    installed: Mapping[str, str | None],
) -> str | None:
    """Return the first problem to fix, in a sentence, or None if TensorFlow finds a GPU."""
    if tensorflow.get("gpus"):
        return None
    wheel = installed["wheel"] or "tensorflow"
    version = installed["tensorflow"] or tensorflow.get("version")
    with_cuda = f"pip install 'tensorflow[and-cuda]=={version}'"
    visible = variables.get("CUDA_VISIBLE_DEVICES")
    missing = [name for name in LIBRARIES if libraries.get(name) is not None]
    if "error" in tensorflow:
        return f"TensorFlow sees no GPU: it does not start: {tensorflow['error']}"
    if not tensorflow["cuda_build"]:
        why = f"{wheel} {version} is built without CUDA; pip uninstall {wheel}, then {with_cuda}"
    elif driver.get("missing"):
        why = (
            f"no NVIDIA driver was found ({DRIVER} does not load); install it, or start the "
            "container with its GPU (docker run --gpus all)"
        )
    elif visible is not None and (not visible.strip() or visible.strip().startswith("-1")):
        why = f"CUDA_VISIBLE_DEVICES={visible} hides every GPU; unset it"
    elif driver.get("status"):
        code = driver["status"]
        why = (
            f"the NVIDIA driver does not start: cuInit gave {code} "
            f"({_CODES.get(code, 'see the CUDA driver API')})"
        )
    elif driver.get("error"):
        why = f"the NVIDIA driver does not start: {driver['error']}"
    elif not driver.get("devices"):
        why = "the NVIDIA driver shows no device"
    elif int(driver["cuda"].split(".")[0]) < int(tensorflow["cuda_version"].split(".")[0]):
        why = (
            f"the NVIDIA driver is made for CUDA {driver['cuda']}, but {wheel} {version} for "
            f"{tensorflow['cuda_version']}; install a newer driver"
        )
    elif missing:
        do = "do" if len(missing) > 1 else "does"
        why = f"{', '.join(missing)} {do} not load; {with_cuda}"
    else:
        why = "its driver and its libraries load; deploykit doctor --debug shows TensorFlow's log"
    return f"TensorFlow sees no GPU: {why}"


def xla_tools(
    libraries: Sequence[str], variables: Mapping[str, str], cuda: str | None = None
) -> dict[str, str | None]:
    """Return the paths of XLA's assembler and math library; None: not found.

    Without them, TensorFlow runs models on GPUs, but cannot compile them with XLA.

    The search order is XLA's (CandidateCudaRoots): the folder in its flag, NVIDIA's wheels (next to
    `libraries`), /usr/local/cuda of version `cuda`, then of any version. The assembler may also be
    in PATH.
    """
    named = _DATA_DIR.search(variables.get("XLA_FLAGS", ""))
    roots = [Path(named[1])] if named else []
    roots += sorted({Path(library).parent.parent / "cuda_nvcc" for library in libraries})
    if cuda:
        roots.append(_SYSTEM / f"cuda-{'.'.join(cuda.split('.')[:2])}")
    roots.append(_SYSTEM / "cuda")
    paths: dict[str, str | None] = {}
    for tool, place in _PLACES.items():
        there = [root / place for root in roots if (root / place).is_file()]
        paths[tool] = str(there[0]) if there else None
    paths[PTXAS] = paths[PTXAS] or shutil.which("ptxas", path=variables.get("PATH"))
    return paths


def _in_child(function: str, *arguments: Any) -> Any:
    """Return the result of a function of this module; it runs in a process, as it may crash."""
    forced = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES")}
    if limits.show_log:  # logs each attempt to open a library
        forced |= {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "dso_loader=2"}
    with closing(
        Worker(f"deploykit.system.doctor:{function}", *arguments, forced=forced)
    ) as worker:
        try:
            return worker.created()
        except Error as error:
            return {"error": str(error)}


def tensorflow_metadata() -> dict[str, Any]:
    """Start TensorFlow, and return its build and the GPUs that it finds."""
    try:
        import tensorflow as tf
        from tensorflow.python.util import _pywrap_util_port as port
    except ImportError as error:
        return {"error": " ".join(str(error).split())[:300]}

    build = tf.sysconfig.get_build_info()
    gpus = []
    for device in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(device)
        capability = details.get("compute_capability")
        gpus.append(
            {
                "name": device.name,
                "model": details.get("device_name"),
                "compute_capability": capability and ".".join(map(str, capability)),
            }
        )
    return {
        "version": tf.__version__,
        "git_version": tf.version.GIT_VERSION,
        "compiler": tf.version.COMPILER_VERSION,
        "cuda_build": bool(tf.test.is_built_with_cuda()),
        "cuda_version": build.get("cuda_version"),
        "cudnn_version": build.get("cudnn_version"),
        "compute_capabilities": list(build.get("cuda_compute_capabilities", ())),
        "onednn": bool(port.IsMklEnabled()),
        "gpus": gpus,
    }


def driver_metadata() -> dict[str, Any]:
    """Return the version and devices of the NVIDIA driver, from NVML if it is installed."""
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError as error:
        return {"missing": str(error)}
    status = driver.cuInit(0)
    number, count = ctypes.c_int(), ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(number))
    if not status:
        driver.cuDeviceGetCount(ctypes.byref(count))
    return {
        "status": status,
        "cuda": f"{number.value // 1000}.{number.value % 1000 // 10}",
        "devices": count.value,
        **_nvml(),
    }


def _nvml() -> dict[str, Any]:
    try:
        pynvml: Any = importlib.import_module("pynvml")  # from nvidia-ml-py
    except ImportError:
        return {}
    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return {
            "version": pynvml.nvmlSystemGetDriverVersion(),
            "boards": [
                {
                    "model": pynvml.nvmlDeviceGetName(handle),
                    "memory_bytes": pynvml.nvmlDeviceGetMemoryInfo(handle).total,
                }
                for handle in handles
            ],
        }
    return {}


def load(names: Sequence[str], folders: Sequence[str]) -> dict[str, str | None]:
    """Load libraries by the linker's search path, else from `folders`: None, or the error."""
    result: dict[str, str | None] = {}
    for name in names:
        paths = [Path(folder, name) for folder in folders]
        for path in (name, *(str(path) for path in paths if path.exists())):
            try:
                ctypes.CDLL(path)
            except OSError as error:
                result[name] = str(error)
            else:
                result[name] = None
                break
    return result


def _pip_folders() -> list[str]:
    """Return the folders of NVIDIA's wheels next to TensorFlow, on its linker path."""
    spec = importlib.util.find_spec("tensorflow")
    roots = [
        str(Path(location).parent) for location in (spec and spec.submodule_search_locations) or ()
    ]
    roots += [*site.getsitepackages(), site.getusersitepackages(), *sys.path]
    return sorted({str(f) for root in roots if root for f in Path(root).glob("nvidia/*/lib")})
