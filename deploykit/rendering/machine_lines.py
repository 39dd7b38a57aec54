"""The text of `deploykit doctor`."""

from collections.abc import Iterator, Mapping
from typing import Any

from deploykit.rendering.tables import Cell, OwnLines, Table, constant, facts
from deploykit.rendering.templates import filled, filled_lines, rendered_rows, size
from deploykit.transforms.common.messages import escaped

_WITHOUT = {
    "ptxas": "XLA cannot compile for a GPU without it",
    "libdevice": "XLA cannot compile exp, tanh and similar functions for a GPU without it",
    "CUPTI": "profiles cannot time GPU kernels without it",
}
_MACHINE: Mapping[str, Cell] = {
    "platform": "{machine.platform}",
    "CPU": "{machine.cpu}",
    "CPUs": "{machine.cpus}[[, {machine.cores} cores]][[, allowed here: {machine.affinity}]]"
    "[[, control group: {machine.cpu_limit:g} CPUs]][[, governor {machine.governor}]]",
    "CPU flags": lambda row: " ".join(row["machine"]["flags"]) or "-",
    "memory": "{machine.memory_bytes:size}, {machine.memory_available_bytes:size} available"
    "[[, control group: {machine.memory_limit_bytes:size}]]",
    "load": lambda row: ", ".join(f"{load:g}" for load in row["machine"]["load"]),
}
_THREADS = "{threads.intra} per op, {threads.inter} ops in parallel"
_LIMITED = "; more than the {machine.cpu_limit:g} CPUs of the control group: set --threads"


def lines(results: Mapping[str, Any]) -> Iterator[str | Table]:
    """Yield the document of a machine; the last line is about the GPU."""
    versions = results["machine"]["versions"].items()
    extras = {has: [k for k, v in results["extras"].items() if v is has] for has in (True, False)}
    limit = results["machine"]["cpu_limit"]
    too_many = limit is not None and limit < results["threads"]["intra"]
    yield facts(
        results,
        {
            **_MACHINE,
            **constant({k: v or "not installed" for k, v in versions if k != "tensorflow"}),
            "extras": lambda _: ", ".join(extras[True]) or "-",
            "extras missing": lambda _: ", ".join(extras[False]) or "-",
            "tensorflow": lambda _: _tensorflow(results["tensorflow"]),
            "oneDNN": "" if "error" in results["tensorflow"] else "{onednn.on:on} ({onednn.why})",
            "threads": _THREADS + _LIMITED * too_many,
            **constant(results["environment"]),
            **constant(_gpu(results["gpu"])),
        },
    )
    yield from rendered_rows(
        results["gpu"]["seen"],
        "TensorFlow sees {name}: {model}, compute capability {compute_capability}",
    )
    yield from filled_lines(results["gpu"], "{refusal}")


def _tensorflow(results: Mapping[str, Any]) -> str | None:
    if "error" in results:
        return f"does not start: {results['error']}"
    built = "for CUDA {cuda_version}, cuDNN {cudnn_version}"
    built = built if results["cuda_build"] else "without CUDA"
    return filled(f"{{version}} ({{git_version}}), built {built}", results)


def _gpu(results: Mapping[str, Any]) -> dict[str, str]:
    """Return the driver, boards, libraries and tools of the GPU."""
    driver, cupti, libraries = results["driver"], results["cupti"], results["libraries"]
    cuda = filled("NVIDIA[[ {version}]], CUDA {cuda}, {devices} devices", driver)
    boards = [f"{b['model']}, {size(b['memory_bytes'])}" for b in driver.get("boards", ())]
    loads = {k: "loads" if v is None else f"does not load: {v}" for k, v in libraries.items()}
    if "error" in loads:
        loads["libraries"] = loads.pop("error")
    tools = {
        name: path or f"not found: {_WITHOUT[name]}" for name, path in results["tools"].items()
    }
    return {
        "driver": cuda or driver.get("missing") or driver["error"],
        "board": OwnLines("\n".join(map(escaped, boards))),
        **loads,
        **tools,
        "CUPTI": "loads" if cupti is None else f"does not load ({_WITHOUT['CUPTI']}): {cupti}",
    }
