"""How a server is spoken to, as plain data."""

from dataclasses import dataclass
from typing import Literal, get_args

from deploykit.transforms.core.errors import Error

ServingProtocol = Literal["tensorflow", "v2"]
PROTOCOLS: tuple[ServingProtocol, ...] = get_args(ServingProtocol)


@dataclass(frozen=True)
class Connection:
    """How a server is spoken to; all but its address."""

    tls: bool = False
    """Encrypt, and trust the authorities that the system trusts."""
    ca: str | None = None
    """Encrypt, and trust the authorities in this PEM file."""
    certificate: str | None = None
    """A PEM file with the caller's own certificate, for mutual TLS."""
    key: str | None = None
    """The PEM file with its private key."""
    server_name: str | None = None
    """The name in the server's certificate, where it is not that of the address."""
    timeout: float = 60
    """In seconds, of each call with its retries."""
    retries: int = 2
    """How often a call is repeated while no server can be reached; `reload` never is."""
    protocol: ServingProtocol = "tensorflow"
    """The API of the server: TensorFlow Serving's, or the Open Inference Protocol (`v2`) that
    KServe, Triton, OpenVINO Model Server and MLServer have too."""

    def __post_init__(self) -> None:
        """Raise Error for another protocol."""
        if self.protocol not in PROTOCOLS:
            raise Error("not-one-of", what="--protocol", known=PROTOCOLS, got=self.protocol)


DEFAULT_CONNECTION = Connection()
