"""Which server, and how it is spoken to."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from deploykit.cli.options.grouping import all_of, as_one
from deploykit.cli.options.types import Finite

if TYPE_CHECKING:
    from deploykit.serving.client.client import Client
    from deploykit.serving.client.endpoint import Endpoint


@dataclass(frozen=True)
class Connection:
    """How a server is spoken to; all but the address."""

    tls: bool = False
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    server_name: str | None = None
    timeout: float = 60.0

    def client(self, address: str) -> "Client":
        """Return a client. Error: the address is none. FileError: a certificate is not there."""
        from deploykit.serving.client.client import Client

        return Client(address, **asdict(self))

    def endpoint(self, address: str) -> "Endpoint":
        """Return it for whoever counts each call, so none is repeated."""
        from deploykit.serving.client.endpoint import Endpoint

        return Endpoint(address, **asdict(self), retries=0)


connection = as_one(
    "connection",
    Connection,
    click.option("--tls", is_flag=True, help="Encrypt, and trust the authorities that the system "
                 "trusts."),
    click.option("--ca", metavar="FILE.pem", help="Encrypt, and trust the authorities in this "
                 "file."),
    click.option("--certificate", metavar="FILE.pem", help="Your own certificate, where the server "
                 "asks for one (mutual TLS)."),
    click.option("--key", metavar="FILE.pem", help="Its private key."),
    click.option("--server-name", metavar="NAME", help="The name in the server's certificate, "
                 "where the address has another."),
    click.option("--timeout", type=Finite(min=0, min_open=True), default=60, show_default=True,
                 metavar="SECONDS", help="Wait at most this long for an answer."),
)  # fmt: skip


which_version = all_of(
    click.option("--version", type=click.IntRange(min=0), metavar="N",
                 help="Version of the model [default: the newest]."),
    click.option("--version-label", "label", default="", metavar="LABEL",
                 help="Label of the version instead, such as stable."),
)  # fmt: skip
