"""Descriptions of the transforms: their docstrings and parameters."""

import inspect
import re
import typing
from typing import Any

from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.user_functions import value_type


def describe(name: str) -> dict[str, Any]:
    """Return a transform's name, summary, text and parameters (name, type, default, help).

    An alias has the parameters of its transforms. PipelineError: the transform does not exist.
    """
    if name in pipeline.ALIASES:
        return _describe_alias(name)
    docstring = inspect.getdoc(pipeline.function(name)) or ""
    text, _, arguments = docstring.partition("\nArgs:\n")
    helps = _arguments(arguments)
    return {
        "name": name,
        "summary": text.strip().split("\n\n")[0].replace("\n", " "),
        "text": text.strip(),
        "parameters": [
            {
                "name": parameter,
                "type": value_type(type_).__name__,
                "repeatable": typing.get_origin(type_) is tuple,
                "default": None if default is inspect.Parameter.empty else default,
                "required": default is inspect.Parameter.empty,
                "help": helps.get(parameter, ""),
            }
            for parameter, (type_, default) in pipeline.parameters(name).items()
        ],
    }


def _describe_alias(name: str) -> dict[str, Any]:
    meant = [describe(alias) for alias in pipeline.ALIASES[name]]
    text = f"Another name for {', then '.join(item['name'] for item in meant)}."
    parameters = {p["name"]: p for item in meant for p in item["parameters"]}
    return {
        "name": name,
        "summary": text,
        "text": text,
        "parameters": list(parameters.values()),
    }


def _arguments(text: str) -> dict[str, str]:
    """Return the help of each parameter from the `Args:` section of a docstring."""
    names: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        start = re.match(r"(?:    )?(\w+): (.*)", line)
        if start is not None and not line.startswith(" " * 8):
            name, names[start.group(1)] = start.group(1), start.group(2)
        elif name and line.startswith(" " * 8):
            names[name] += " " + line.strip()
        else:
            break
    return names
