"""Options and commands of other tools, and what takes their place here.

They are looked up only after an unknown option or command.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import click

from deploykit.transforms.common.messages import shell_word

_ALWAYS_WARM = "the warm-up ends by itself once the times are stable, and is not measured"
_INPUT = "deploykit predict --input NAME=VALUE takes numbers, text or a .npy file"
_TOLERANCE = "--tolerance"
_TUNE = "deploykit tune searches for the fastest settings"
OPTIONS: Mapping[str, tuple[str, str]] = {
    "-b": ("benchmark_app, perf_analyzer", "--batch"),
    "-d": ("benchmark_app", "--device"),
    "-f": ("perf_analyzer", "--output"),
    "-hint": ("benchmark_app", _TUNE),
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
    "--best": ("trtexec", _TUNE),
    "--concurrency-range": ("perf_analyzer", "--concurrency"),
    "--dir": ("saved_model_cli", "MODEL"),
    "--dumpProfile": ("trtexec", "--profile"),
    "--duration": ("trtexec", "--seconds"),
    "--exportProfile": ("trtexec", "--trace"),
    "--exportTimes": ("trtexec", "--csv"),
    "--fp16": ("trtexec", "--precision fp16"),
    "--grpc-port": ("Triton", "--port"),
    "--http-port": ("Triton", "--rest_api_port"),
    "--input-data": ("perf_analyzer", "--data FILE.npz gives the samples"),
    "--input-shapes": ("Polygraphy", "--shape"),
    "--input_checkpoint": ("freeze_graph", "MODEL"),
    "--input_examples": ("saved_model_cli", _INPUT),
    "--input_exprs": ("saved_model_cli", _INPUT),
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
    "--latency-limit": "load-test",
    "--output": "freeze",
    "--port": "serve",
    "--rate": "load-test",
    "--rest_api_port": "serve",
    "--tolerance": "verify",
}
"""The command that has such an option, if it is not benchmark."""
_ARGUMENTS = {
    "MODEL": ("model", "models", "reference", "baseline", "first", "base_dir"),
    "ADDRESS": ("address",),
}


_BRACKETS = re.compile(r"([^\[\],]*?):?\[([^\[\]]*)\]")


def _shapes(value: str) -> str:
    """Return shapes as `--shape` takes them, which is repeated for several inputs.

    Other tools write `a:1x2,b:3x4`, `a[1,2],b[3,4]`, `a:[1,2]` or only `1x2` or `[1,2]`.
    """
    if "[" in value:
        named = [(match[1].strip(), match[2]) for match in _BRACKETS.finditer(value)]
    elif "x" in value.rpartition(":")[2]:
        parts = [part.rpartition(":") for part in value.split(",")]
        named = [(name, sizes.replace("x", ",")) for name, _, sizes in parts]
    else:
        named = [("", value)]
    shapes = [f"{name}{'=' * bool(name)}{sizes.replace(' ', '')}" for name, sizes in named]
    return " --shape ".join(map(shell_word, shapes))


def _numbers(value: str) -> str:
    """`1:8:2` as the numbers 1,3,5,7; beyond 32 numbers, the first and the last."""
    first, _, rest = value.partition(":")
    last, _, step = rest.partition(":")
    if not (first.isdecimal() and last.isdecimal() and (step or "1").isdecimal()):
        return shell_word(value)
    listed = range(int(first), int(last) + 1, max(1, int(step or 1)))
    return ",".join(map(str, listed)) if 0 < len(listed) <= 32 else f"{first},{last}"


def _seconds(value: str) -> str:
    return f"{int(value) / 1000:g}" if value.isdecimal() else shell_word(value)


_VALUES: Mapping[str, Callable[[str], str]] = {
    "--concurrency": _numbers,
    "--device": lambda value: shell_word(value.lower()),
    "--measurement-interval": _seconds,
    "--precision": lambda value: {"f32": "fp32", "f16": "fp16"}.get(value, shell_word(value)),
    "--profile": lambda _: "",
    "--rate": lambda value: shell_word(value.partition(":")[0]),
    "--shape": _shapes,
}
"""How a value of these options of other tools, or for these options here, is written here."""


def replacement(command: click.Command, words: str, arguments: Sequence[str]) -> tuple[str, str]:
    """Return the first option of other tools in a command line, and what takes its place here.

    Both are empty if there is none. `words` is the command as typed: `deploykit benchmark`.
    """
    found = {name: value for name, value in _values(arguments) if not _has(command, name)}
    if not found:
        return "", ""
    name = next(iter(found))
    tools, here = OPTIONS[name]
    return name, f"it is an option of {tools}{_in_place_of(name, here, found, command, words)}"


def _values(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the options of other tools before `--`, each with its value or an empty string."""
    for position, item in enumerate(arguments):
        if item == "--":
            return
        name, equals, value = item.partition("=")
        following = arguments[position + 1 : position + 2]
        if name in OPTIONS:
            is_next = not equals and following and not following[0].startswith("-")
            yield name, following[0] if is_next else value


def _in_place_of(
    name: str, here: str, found: Mapping[str, str], command: click.Command, words: str
) -> str:
    """Return what to write instead of an option; empty: nothing here does the same."""
    value = found[name]
    if here == "MODEL" and _has(command, "--in_graph"):
        here = "--in_graph"
    if here in _ARGUMENTS:
        line = _line(here, found, command, words)
        return line and f"; give {shell_word(value or here)} without an option: {line}"
    option, _, rest = here.partition(" ")
    if not option.startswith("-") or " " in rest:
        return f"; {here}"
    convert = _VALUES.get(name) or _VALUES.get(option) or shell_word
    written = f"{option} {rest or (convert(value) if value else '')}".strip()
    if _has(command, option):
        return f"; use {written}"
    return f"; deploykit {_OWNERS.get(option, 'benchmark')} has {written} instead"


def _line(here: str, found: Mapping[str, str], command: click.Command, words: str) -> str:
    """Return the command with its arguments, or an empty string if it has no such argument."""
    values = {OPTIONS[name][1]: value for name, value in found.items() if value}
    line, is_known = [words], False
    for parameter in command.params:
        kinds = [kind for kind, names in _ARGUMENTS.items() if parameter.name in names]
        if isinstance(parameter, click.Argument) and (parameter.required or kinds):
            kind = kinds[0] if kinds else str(parameter.name).upper()
            is_known |= kind == here
            line.append(shell_word(values.get(kind, kind)))
    return " ".join(line) if is_known else ""


def _has(command: click.Command, option: str) -> bool:
    return any(option in parameter.opts for parameter in command.params)
