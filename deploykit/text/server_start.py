"""Where a server listens and what it serves, in lines for people."""

from collections.abc import Iterator, Mapping
from typing import Any


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the document of a server that runs as text."""
    kind = "REST (HTTPS)" if (found["rest_url"] or "").startswith("https:") else "REST"
    rest = f", {kind} on port {found['rest_api_port']}" if found["rest_api_port"] else ""
    yield f"listening on {found['host']}:{found['port']}{rest}"
    for name, versions in found["models"].items():
        yield f"serving {name}: {', '.join(map(str, versions)) or 'no version yet'}"
