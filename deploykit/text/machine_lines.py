"""What `deploykit doctor` found, in lines for people."""

from collections.abc import Iterator, Mapping
from typing import Any

from deploykit.text.tables import size

_WITHOUT = {
    "ptxas": "XLA compiles nothing for a GPU without it",
    "libdevice": "XLA compiles no exp, tanh and the like for a GPU without it",
    "CUPTI": "a profile tells no kernel's time on a GPU without it",
}


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield what was found as text; the last line is about the GPU."""
    yield from _machine_lines(found["machine"])
    yield from _extra_lines(found["extras"])
    yield from _tensorflow_lines(found["tensorflow"], found["onednn"])
    threads, limit = found["threads"], found["machine"]["cpu_limit"]
    yield _row("threads", f"{threads['intra']} inside an op, {threads['inter']} ops at once")
    if limit is not None and limit < threads["intra"]:
        yield _row(
            "", f"more than the {limit:g} CPUs that the control group allows: give --threads"
        )
    for name, value in found["environment"].items():
        yield _row("variable", f"{name}={value}")
    yield from _gpu_lines(found["gpu"])


def _machine_lines(found: Mapping[str, Any]) -> Iterator[str]:
    limit, most = found["cpu_limit"], found["memory_limit_bytes"]
    cores = "" if found["cores"] is None else f", {found['cores']} cores"
    affinity = found["affinity"]
    yield _row("platform", found["platform"])
    yield _row("CPU", found["cpu"])
    yield _row(
        "CPUs",
        f"{found['cpus']}{cores}"
        + ("" if affinity is None else f", allowed here: {','.join(map(str, affinity))}")
        + ("" if limit is None else f", control group: {limit:g} CPUs")
        + ("" if found["governor"] is None else f", governor {found['governor']}"),
    )
    yield _row("CPU flags", " ".join(found["flags"]) or "-")
    yield _row(
        "memory",
        f"{size(found['memory_bytes'])}, {size(found['memory_available_bytes'])} available"
        + ("" if most is None else f", control group: {size(most)}"),
    )
    yield _row("load", ", ".join(f"{each:g}" for each in found["load"]))
    for name, version in found["versions"].items():
        if name != "tensorflow":
            yield _row(name, version or "not installed")


def _extra_lines(found: Mapping[str, bool]) -> Iterator[str]:
    for title, is_installed in (("extras", True), ("extras missing", False)):
        names = ", ".join(name for name, is_there in found.items() if is_there is is_installed)
        yield _row(title, names or "-")


def _tensorflow_lines(found: Mapping[str, Any], onednn: Mapping[str, Any]) -> Iterator[str]:
    if "error" in found:
        yield _row("tensorflow", f"does not start: {found['error']}")
        return
    built = "without CUDA"
    if found["cuda_build"]:
        built = f"for CUDA {found['cuda_version']}, cuDNN {found['cudnn_version']}"
    yield _row("tensorflow", f"{found['version']} ({found['git_version']}), built {built}")
    yield _row("oneDNN", f"{'on' if onednn['on'] else 'off'} ({onednn['why']})")


def _gpu_lines(found: Mapping[str, Any]) -> Iterator[str]:
    driver = found["driver"]
    if "cuda" in driver:
        version = f" {driver['version']}" if "version" in driver else ""
        yield _row("driver", f"NVIDIA{version}, CUDA {driver['cuda']}, {driver['devices']} devices")
    else:
        yield _row("driver", driver.get("missing") or driver["error"])
    for board in driver.get("boards", ()):
        yield _row("board", f"{board['model']}, {size(board['memory_bytes'])}")
    for library, why in found["libraries"].items():
        name = "libraries" if library == "error" else library  # nothing could be tried
        yield _row(name, "loads" if why is None else f"does not load: {why}")
    for tool, path in found["tools"].items():
        yield _row(tool, path or f"not found: {_WITHOUT[tool]}")
    why = found["cupti"]
    yield _row("CUPTI", "loads" if why is None else f"does not load ({_WITHOUT['CUPTI']}): {why}")
    for gpu in found["seen"]:
        yield (
            f"TensorFlow sees {gpu['name']}: {gpu['model']}, compute capability "
            f"{gpu['compute_capability']}"
        )
    if found["refusal"] is not None:
        yield found["refusal"]


def _row(name: str, text: str) -> str:
    return f"{name:18} {text}"
