"""Options and commands of other tools, and what takes their place here.

They are looked up only after an unknown option or command.
"""

from collections.abc import Callable, Mapping, Sequence

import click

from deploykit.transforms.common.messages import shell_command

_ALWAYS_WARM = "the warm-up ends by itself once the times are stable, and is not measured"
_TOLERANCE = "--tolerance"
OPTIONS: Mapping[str, tuple[str, str]] = {
    "-b": ("benchmark_app, perf_analyzer", "--batch"),
    "-d": ("benchmark_app", "--device"),
    "-f": ("perf_analyzer", "--output"),
    "-hint": ("benchmark_app", "--scenario offline measures throughput, --scenario single latency"),
    "-i": ("benchmark_app", "--data gives the samples"),
    "-infer_precision": ("benchmark_app", "--precision"),
    "-m": ("benchmark_app, perf_analyzer", "MODEL"),
    "-niter": ("benchmark_app", "--runs"),
    "-nireq": ("benchmark_app", "--concurrency"),
    "-nstreams": ("benchmark_app", "--concurrency"),
    "-nthreads": ("benchmark_app", "--threads"),
    "-pc": ("benchmark_app", "--profile"),
    "-shape": ("benchmark_app", "--shape"),
    "-t": ("benchmark_app", "--seconds"),
    "-u": ("perf_analyzer", "ADDRESS"),
    "--atol": ("Polygraphy", _TOLERANCE),
    "--best": ("trtexec", "deploykit tune searches for the fastest settings"),
    "--concurrency-range": ("perf_analyzer", "--concurrency"),
    "--dir": ("saved_model_cli", "MODEL"),
    "--dumpProfile": ("trtexec", "--profile"),
    "--duration": ("trtexec", "--seconds"),
    "--exportProfile": ("trtexec", "--trace"),
    "--exportTimes": ("trtexec", "--csv"),
    "--fp16": ("trtexec", "--precision fp16"),
    "--grpc-port": ("Triton", "--port"),
    "--http-port": ("Triton", "--rest_api_port"),
    "--input-data": ("perf_analyzer", "--data"),
    "--input-shapes": ("Polygraphy", "--shape"),
    "--input_checkpoint": ("freeze_graph", "MODEL"),
    "--input_examples": ("saved_model_cli", "--input"),
    "--input_exprs": ("saved_model_cli", "--input"),
    "--input_graph": ("freeze_graph", "--graph"),
    "--input_model": ("ovc", "MODEL"),
    "--input_shape": ("ovc", "--shape"),
    "--int8": ("trtexec", "deploykit quantize writes an int8 model"),
    "--iterations": ("trtexec, Polygraphy", "--runs"),
    "--latency-threshold": ("perf_analyzer", "--latency-limit"),
    "--load-inputs": ("Polygraphy", "--data"),
    "--loadInputs": ("trtexec", "--data"),
    "--maxShapes": ("trtexec", "--shape"),
    "--mean_values": ("ovc", "--preprocess FILE.json has mean and std"),
    "--measurement-interval": ("perf_analyzer", "--seconds"),
    "--minShapes": ("trtexec", "--shape"),
    "--model": ("other tools", "MODEL"),
    "--model-repository": ("Triton", "MODEL"),
    "--model-store": ("Triton, TorchServe", "MODEL"),
    "--num_runs": ("TensorFlow Lite's benchmark_model", "--runs"),
    "--num_threads": ("TensorFlow Lite's benchmark_model", "--threads"),
    "--onnx": ("trtexec", "MODEL"),
    "--optShapes": ("trtexec", "--shape"),
    "--output_graph": ("freeze_graph", "--output"),
    "--output_model": ("ovc", "--output"),
    "--output_node_names": ("freeze_graph", "--outputs"),
    "--percentile": ("perf_analyzer", "p50, p95 and p99 are always reported"),
    "--request-rate-range": ("perf_analyzer", "--rate"),
    "--rtol": ("Polygraphy", _TOLERANCE),
    "--saved-model": ("tf2onnx", "MODEL"),
    "--saved_model_dir": ("tflite_convert", "MODEL"),
    "--scale_values": ("ovc", "--preprocess FILE.json has mean and std"),
    "--shapes": ("trtexec", "--shape"),
    "--signature_def": ("saved_model_cli", "--signature"),
    "--streams": ("trtexec", "--concurrency"),
    "--tag_set": ("saved_model_cli", "--tags"),
    "--url": ("perf_analyzer", "ADDRESS"),
    "--warm-up": ("Polygraphy", _ALWAYS_WARM),
    "--warmUp": ("trtexec", _ALWAYS_WARM),
    "--warmup_runs": ("TensorFlow Lite's benchmark_model", _ALWAYS_WARM),
}
"""By spelling: the tools, and the option here (with or without a value), MODEL or ADDRESS for an
argument, or a sentence."""

COMMANDS: Mapping[str, tuple[str, str]] = {
    "benchmark_app": ("OpenVINO", "benchmark"),
    "convert": ("tf2onnx, Polygraphy", "freeze"),
    "deploy": ("other tools", "ship"),
    "eval": ("other tools", "accuracy"),
    "evaluate": ("other tools", "accuracy"),
    "freeze_graph": ("TensorFlow", "freeze"),
    "label_image": ("TensorFlow", "label"),
    "ovc": ("OpenVINO", "export"),
    "perf_analyzer": ("Triton", "load-test"),
    "profile": ("model_analyzer", "benchmark"),
    "run": ("saved_model_cli, Polygraphy", "infer"),
    "scan": ("saved_model_cli", "check"),
    "show": ("saved_model_cli", "inspect"),
    "summarize_graph": ("TensorFlow", "inspect"),
    "test": ("other tools", "verify"),
    "transform_graph": ("TensorFlow", "transform"),
    "trtexec": ("TensorRT", "benchmark"),
    "validate": ("other tools", "verify"),
}
"""By name: the tools, and the command here."""

_OWNERS = {
    "--graph": "freeze",
    "--input": "predict",
    "--output": "freeze",
    "--port": "serve",
    "--rest_api_port": "serve",
    "--tolerance": "verify",
}
"""The command that has such an option, if it is not benchmark."""
_ARGUMENTS = {
    "MODEL": ("model", "models", "reference", "baseline", "first", "base_dir"),
    "ADDRESS": ("address",),
}


def _shapes(value: str) -> str:
    """`a:1x2,b:3x4`, `a[1,2]` or `[1,2]` as the shapes of `--shape`, which may be repeated."""
    if "x" not in value and ":" not in value:
        return value.strip("[]").replace("[", "=")
    named = [part.rpartition(":") for part in value.split(",")]
    return " --shape ".join(
        f"{name}{'=' * bool(name)}{dimensions.replace('x', ',')}" for name, _, dimensions in named
    )


def _numbers(value: str) -> str:
    """`1:8:2` as the numbers 1,3,5,7; beyond 32 numbers, the first and the last."""
    first, _, rest = value.partition(":")
    last, _, step = rest.partition(":")
    if not (first.isdecimal() and last.isdecimal() and (step or "1").isdecimal()):
        return value
    listed = range(int(first), int(last) + 1, max(1, int(step or 1)))
    return ",".join(map(str, listed)) if len(listed) <= 32 else f"{first},{last}"


def _seconds(value: str) -> str:
    return f"{int(value) / 1000:g}" if value.isdecimal() else value


_VALUES: Mapping[str, Callable[[str], str]] = {
    "--concurrency": _numbers,
    "--device": str.lower,
    "--measurement-interval": _seconds,
    "--rate": lambda value: value.partition(":")[0],
    "--shape": _shapes,
}
"""How a value of these options of other tools, or for these options here, is written here."""


def replacement(command: click.Command, words: str, arguments: Sequence[str]) -> tuple[str, str]:
    """Return the first option of other tools in a command line, and what takes its place here.

    Both are empty if there is none. `words` is the command as typed: `deploykit benchmark`.
    """
    for position, item in enumerate(arguments):
        name, equals, value = item.partition("=")
        if item == "--":
            break
        if name in OPTIONS and not _has(command, name):
            following = arguments[position + 1 : position + 2]
            if not equals and following and not following[0].startswith("-"):
                value = following[0]
            return name, _in_place_of(name, value, command, words)
    return "", ""


def _in_place_of(name: str, value: str, command: click.Command, words: str) -> str:
    tools, here = OPTIONS[name]
    origin = f"it is an option of {tools}"
    if here in _ARGUMENTS:
        names = [str(p.name) for p in command.params if isinstance(p, click.Argument)]
        if not {*names} & {*_ARGUMENTS[here]}:
            return origin
        example = shell_command(value or here)
        return f"{origin}; give {example} without an option: {words} {example}"
    option, _, rest = here.partition(" ")
    if not option.startswith("-") or " " in rest:
        return f"{origin}; {here}"
    convert = _VALUES.get(name) or _VALUES.get(option) or str
    written = f"{option} {rest or (convert(value) if value else '')}".strip()
    if _has(command, option):
        return f"{origin}; use {written}"
    owner = _OWNERS.get(option, "benchmark")
    return f"{origin}; deploykit {owner} has {written} instead"


def _has(command: click.Command, option: str) -> bool:
    return any(option in parameter.opts for parameter in command.params)
