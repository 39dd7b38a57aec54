"""Which server, and how it is spoken to."""

import click

from deploykit.cli.options.grouping import all_of, as_one
from deploykit.cli.options.types import Finite, PathName
from deploykit.serving.client.connection import Connection

connection = as_one(
    "connection",
    Connection,
    click.option("--tls", is_flag=True, help="Encrypt, and trust the authorities that the system "
                 "trusts."),
    click.option("--ca", type=PathName("FILE.pem"), help="Encrypt, and trust the authorities in "
                 "this file."),
    click.option("--certificate", type=PathName("FILE.pem"), help="Your own certificate, where the "
                 "server asks for one (mutual TLS)."),
    click.option("--key", type=PathName("FILE.pem"), help="Its private key."),
    click.option("--server-name", metavar="NAME", help="The name in the server's certificate, "
                 "where the address has another."),
    click.option("--timeout", type=Finite(min=0, min_open=True), default=Connection.timeout,
                 show_default=True, metavar="SECONDS", help="Wait at most this long for an "
                 "answer."),
)  # fmt: skip


which_version = all_of(
    click.option("--version", type=click.IntRange(min=0), metavar="N",
                 help="Version of the model [default: the newest]."),
    click.option("--version-label", default="", metavar="LABEL",
                 help="Label of the version instead, such as stable."),
)  # fmt: skip
