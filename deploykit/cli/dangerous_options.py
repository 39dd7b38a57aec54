"""Options that run code, open the network or lift a protection: for the command line only.

Another user may have written `deploykit.toml`, which lies in the current folder. Spelling
suggestions do not name options that lift a protection either.
"""

from collections.abc import Mapping

from deploykit.transforms.common.errors import PipelineError, close_names

CODE, NETWORK, PROTECTION = "runs code", "opens the network", "lifts a protection"
_LIMIT, _TRUST = "changes a limit", "changes who is trusted"
_EFFECTS = {
    "address": NETWORK,
    "ca": _TRUST,
    "force": PROTECTION,
    "grpc_channel_arguments": _LIMIT,
    "host": NETWORK,
    "memory_limit": _LIMIT,
    "metric": CODE,
    "pipeline": CODE,
    "rest_api_enable_cors_support": NETWORK,
    "rest_plain": PROTECTION,
    "server_name": _TRUST,
    "service_address": NETWORK,
    "transforms": CODE,
}


def effect(parameter: str, value: object) -> str:
    """Return why an option with this value is for the command line only, or an empty string.

    `parameter` is its name in Python. A metric or transforms run code only if they name a function
    as `module:function`.
    """
    if parameter.startswith("allow"):
        return PROTECTION
    if isinstance(value, list):
        return next(filter(None, (effect(parameter, item) for item in value)), "")
    if parameter == "metric" and ":" not in str(value):
        return ""
    if parameter == "transforms" and not _names_functions(str(value)):
        return ""
    return _EFFECTS.get(parameter, "")


def _names_functions(transforms: str) -> bool:
    from deploykit.transforms.ir.pipeline import parse_calls

    try:
        return any(":" in call.name for call in parse_calls(transforms))
    except PipelineError:  # the command refuses it
        return False


def suggestion(name: str, options: Mapping[str, str]) -> str:
    """Return a hint such as ` (did you mean --batch?)` for an unknown option, or an empty string.

    Suggested are options with one or two other letters, or that begin with this text. `options`
    maps spellings to the names of their parameters in Python.
    """
    bare = name.lstrip("-")
    dashes = name[: len(name) - len(bare)]
    harmless = [
        spelling.lstrip("-")
        for spelling, parameter in options.items()
        if effect(parameter, "") != PROTECTION
    ]
    longer = [item for item in harmless if len(bare) > 2 and item.startswith(bare)][:3]
    close = close_names(bare, harmless) or longer
    return f" (did you mean {' or '.join(dashes + item for item in close)}?)" if close else ""
