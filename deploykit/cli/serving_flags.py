"""Flags in TensorFlow Serving's syntax (--flag=value, --flag, --noflag), and the environment."""

import logging
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from deploykit.cli.dangerous_options import suggestion
from deploykit.cli.failures import see_help
from deploykit.cli.help import refuse_foreign
from deploykit.cli.project_file import WithProjectFile
from deploykit.cli.value_types import PathName, TrueOrFalse
from deploykit.transforms.common.errors import Error, PipelineError

if TYPE_CHECKING:
    from deploykit.benchmarking.run_config import RunConfig

logger = logging.getLogger("deploykit")

ON, OFF, VALUE = "true", "false", ""

WITHOUT_EFFECT = {
    "enable_grpc_healthcheck_service": (ON, "the health service always answers"),
    "enable_per_model_batching_parameters": (OFF, "one parameters file applies to all models"),
    "enable_profiler": (OFF, "the server has no profiler; use deploykit benchmark --profile"),
    "enable_signature_method_name_check": (OFF, "method names are not compared"),
    "flush_filesystem_caches": (OFF, "the kernel frees its caches by itself"),
    "mixed_precision": (VALUE, "use deploykit quantize, or --bf16 of deploykit benchmark"),
    "num_load_threads": (VALUE, "one thread loads models, and no request waits for it"),
    "num_tflite_interpreters_per_pool": (VALUE, "TensorFlow Lite models are not served"),
    "num_tflite_pools": (VALUE, "TensorFlow Lite models are not served"),
    "num_unload_threads": (VALUE, "one thread unloads models, and no request waits for it"),
    "per_process_gpu_memory_fraction": (VALUE, "TensorFlow allocates GPU memory as needed"),
    "platform_config_file": (VALUE, "SavedModels are the only platform"),
    "prefer_tflite_model": (OFF, "TensorFlow Lite models are not served"),
    "remove_unused_fields_from_bundle_metagraph": (ON, "unused fields are always removed"),
    "rest_api_num_threads": (VALUE, "threads start as requests arrive, up to --max_in_flight"),
    "saved_model_tags": (VALUE, "the graph with the tag `serve` is served"),
    "skip_initialize_tpu": (ON, "TPUs are not used"),
    "tensorflow_session_config_file": (VALUE, "use the flags for threads instead"),
    "thread_pool_factory_config_file": (VALUE, "use the flags for threads instead"),
    "use_saved_model": (ON, "SavedModels are the only format"),
    "xla_cpu_compilation_enabled": (OFF, "set TF_XLA_FLAGS in the environment instead"),
    "xla_gpu_compilation_enabled": (OFF, "set TF_XLA_FLAGS in the environment instead"),
}
"""Ignored TensorFlow Serving flags: the fixed value (VALUE: any is accepted) and the reason."""


class Flags(WithProjectFile):
    """A command that accepts flags in TensorFlow Serving's syntax."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Translate the arguments into click's syntax and parse them."""
        if not ctx.resilient_parsing:  # which means that a shell requests completions
            args = list(_translated(ctx, args, _known(self, ctx)))
        return super().parse_args(ctx, args)


def _known(command: click.Command, ctx: click.Context) -> dict[str, tuple[str, click.Option]]:
    """Return spelling and option by name; names have underscores."""
    return {
        spelling[2:].replace("-", "_"): (spelling, option)
        for option in command.get_params(ctx)
        if isinstance(option, click.Option)
        for spelling in option.opts
        if spelling.startswith("--")
    }


def _translated(
    ctx: click.Context, args: list[str], known: dict[str, tuple[str, click.Option]]
) -> Iterator[str]:
    left = list(reversed(args))
    while left:
        item = left.pop()
        if item == "--":
            yield from (item, *reversed(left))
            return
        if not item.startswith("--"):
            yield item
            continue
        name, equals, value = item[2:].partition("=")
        name = name.replace("-", "_")
        if name.startswith("no") and name not in known and _switch(known, name[2:]):
            if equals:
                raise Error("flag-takes-no-value", name=f"--{name}", hint=see_help(ctx))
            name, equals, value = name[2:], "=", OFF
        elif not equals and _switch(known, name):
            equals, value = "=", left.pop() if left and left[-1] in (ON, OFF) else ON
        if name in WITHOUT_EFFECT:
            if not equals and left and not left[-1].startswith("-"):
                value = left.pop()
            held, reason = WITHOUT_EFFECT[name]
            if held == VALUE or value.lower() != held:
                logger.warning("--%s has no effect here: %s", name, reason)
        elif equals and not value and name in known and isinstance(known[name][1].type, PathName):
            continue  # TensorFlow Serving treats an empty path as no path
        elif name in known:
            yield f"{known[name][0]}={value}" if equals else known[name][0]
        else:
            refuse_foreign(ctx, args)
            options = {spelling: str(option.name) for spelling, option in known.values()}
            hint = suggestion(f"--{name}", options | {f"--{each}": "" for each in WITHOUT_EFFECT})
            raise Error("missing", kind="flag", name=f"--{name}", hint=hint + see_help(ctx))


def _switch(known: dict[str, tuple[str, click.Option]], name: str) -> bool:
    """Return whether a flag is boolean."""
    if name in WITHOUT_EFFECT:
        return WITHOUT_EFFECT[name][0] != VALUE
    return name in known and isinstance(known[name][1].type, TrueOrFalse)


_STARTED_ANEW = "DEPLOYKIT_STARTED_ANEW"


def prepare_environment(tuned: "RunConfig", show_log: bool) -> None:
    """Set the variables that TensorFlow and gRPC read at startup; the user's values take
    precedence.

    The C library has already read its variables, so for these the program restarts itself. It does
    so only once, because the loader removes them from a program with raised privileges.
    """
    from deploykit.benchmarking.tuning.recommendation import to_set

    is_second = os.environ.pop(_STARTED_ANEW, None) is not None
    expected = to_set(tuned, os.environ)
    os.environ.update(expected)
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3"}
    ours = {"TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD": "1"} | ({} if show_log else quiet)
    for name, value in ours.items():
        os.environ.setdefault(name, value)
    of_the_c_library = any(name.startswith("MALLOC_") for name in expected)
    if of_the_c_library and not is_second:
        try:
            os.execve(sys.executable, sys.orig_argv, {**os.environ, _STARTED_ANEW: "1"})
        except OSError as error:
            raise PipelineError("restart-failed", reason=error) from None
