"""How a server is spoken to, as plain data."""

from dataclasses import dataclass


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


DEFAULT_CONNECTION = Connection()
