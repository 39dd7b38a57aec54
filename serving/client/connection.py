"""How a server is spoken to, as plain data."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_args

from deploykit.transforms.core.display.flag import Flag
from deploykit.transforms.core.errors import Error

ServingProtocol = Literal["tensorflow", "v2"]
PROTOCOLS: tuple[ServingProtocol, ...] = get_args(ServingProtocol)


@dataclass(frozen=True)
class Connection:
    """How a server is spoken to; all but its address."""

    HEADING: ClassVar = "Server"

    tls: bool = False
    """Encrypt, and trust the certificate authorities of this system."""
    ca: Annotated[str | None, Flag(format="path", metavar="FILE.pem")] = None
    """Encrypt, and trust the certificate authorities in this file."""
    certificate: Annotated[str | None, Flag(format="path", metavar="FILE.pem")] = None
    """Your own certificate, for a server that asks for one (mutual TLS)."""
    key: Annotated[str | None, Flag(format="path", metavar="FILE.pem")] = None
    """The private key of your certificate."""
    server_name: Annotated[str | None, Flag(metavar="NAME")] = None
    """The name in the server's certificate, if it differs from the address."""
    timeout: Annotated[float, Flag(metavar="SECONDS", above=0)] = 60
    """Wait at most this long for a response."""
    retries: Annotated[int, Flag(is_python_only=True, at_least=0)] = 2
    """How often a call is repeated while no server can be reached; `reload` never is."""
    protocol: ServingProtocol = "tensorflow"
    """API of the server: tensorflow is TensorFlow Serving's, v2 is the Open Inference Protocol of
    KServe, Triton, OpenVINO Model Server and MLServer (ADDRESS may be a URL of HTTP)."""

    def __post_init__(self) -> None:
        """Raise Error for another protocol."""
        if self.protocol not in PROTOCOLS:
            raise Error("not-one-of", what="--protocol", known=PROTOCOLS, got=self.protocol)


DEFAULT_CONNECTION = Connection()
