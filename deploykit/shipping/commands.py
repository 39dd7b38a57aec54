"""The next commands for a shipped folder, ready to copy."""

import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from deploykit.exporting.export import default_name
from deploykit.exporting.request_sample import ADDRESS, request_command
from deploykit.importers.model_source import ModelSource
from deploykit.importers.open_model import path_of
from deploykit.shipping.ship_options import ShipOptions
from deploykit.shipping.shipment import Shipment
from deploykit.transforms.common.messages import shell_command, shell_word

_OPTIONS = {"allow_ops": "allow-op", "pins": "pin"}


def commands(shipment: Shipment) -> list[dict[str, str]]:
    """Return commands to serve a folder, send a request, rebuild the report, and ship again."""
    folder = shell_word(os.fspath(shipment.output))
    return [
        {"what": "serve the model", "command": f"deploykit serve {folder}"},
        {"what": "send a request", "command": _ask(shipment)},
        {"what": "rebuild the report", "command": f"deploykit report {folder} --force"},
        {"what": "ship again", "command": _again(shipment)},
    ]


def _ask(shipment: Shipment) -> str:
    """Return a `predict` command with an image of the data, or else the stored sample."""
    photo = shipment.document("serve").get("photo")
    if photo:
        return shell_command("deploykit", "predict", ADDRESS, shipment.name, photo["file"])
    sample = shipment.document("export")["sample"]
    path = None if sample["file"] is None else shipment.output / sample["file"]
    return request_command(shipment.name, path, sample["signature"])


def _again(shipment: Shipment) -> str:
    """Return the `ship` command that repeats this shipment."""
    paths = path_of(shipment.source)
    words = ["deploykit", "ship", *(paths or ("MODEL",))]
    for given, default in ((shipment.source, ModelSource(None)), (shipment.how, ShipOptions())):
        for field_ in fields(given):
            value = getattr(given, field_.name)
            if field_.name in ("model", "name") or value == getattr(default, field_.name):
                continue
            option = f"--{_OPTIONS.get(field_.name, field_.name).replace('_', '-')}"
            words += _words(option, value)
    if not paths or shipment.name != default_name(*paths):
        words += ["--name", shipment.name]
    return shell_command(*words, "-o", os.fspath(shipment.output))


def _words(option: str, value: Any) -> list[str]:
    if value is True:
        return [option]
    if isinstance(value, str | int | float | os.PathLike):
        return [option, str(value)]
    if isinstance(value, Mapping):
        return [word for k, v in value.items() for word in (option, f"{k}={v}")]
    if isinstance(value, list | tuple) and all(isinstance(item, str | float) for item in value):
        if option == "--allow-op":
            return [word for item in value for word in (option, item)]
        return [option, ",".join(map(str, value))]
    return [option, option.strip("-").upper()]
