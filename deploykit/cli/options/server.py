"""Which server, and how it is spoken to."""

import click

from deploykit.cli.options.grouping import all_of, as_one
from deploykit.cli.options.headings import under
from deploykit.cli.options.types import MOST_INT64, Finite, PathName, Whole
from deploykit.serving.client.connection import PROTOCOLS, Connection

server_option = under("Server")
connection = as_one(
    "connection",
    Connection,
    server_option("--tls", is_flag=True, help="Encrypt, and trust the certificate authorities of "
                  "this system."),
    server_option("--ca", type=PathName("FILE.pem"), help="Encrypt, and trust the certificate "
                  "authorities in this file."),
    server_option("--certificate", type=PathName("FILE.pem"),
                  help="Your own certificate, for a server that asks for one (mutual TLS)."),
    server_option("--key", type=PathName("FILE.pem"), help="The private key of your certificate."),
    server_option("--server-name", metavar="NAME", help="The name in the server's certificate, if "
                  "it differs from the address."),
    server_option("--timeout", type=Finite(above=0), default=Connection.timeout, show_default=True,
                  metavar="SECONDS", help="Wait at most this long for an answer."),
    server_option("--protocol", type=click.Choice(PROTOCOLS), default=Connection.protocol,
                  show_default=True, help="API of the server: tensorflow is TensorFlow Serving's, "
                  "v2 is the Open Inference Protocol of KServe, Triton, OpenVINO Model Server and "
                  "MLServer (ADDRESS may be a URL of HTTP)."),
)  # fmt: skip


which_version = all_of(
    server_option("--version", type=Whole(0, MOST_INT64), metavar="N",
                 help="Version of the model [default: the newest]."),
    server_option("--version-label", default="", metavar="LABEL",
                  help="Choose the version by its label, such as stable."),
)  # fmt: skip
