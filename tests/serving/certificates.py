"""Certificates for tests, made by the openssl command."""

import subprocess
from pathlib import Path

from deploykit.serving.server.config_files import Tls


def openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder, self.name = folder, name
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                "-nodes", "-days", 2, "-subj", f"/CN={name}", "-keyout", folder / f"{name}.key",
                "-out", folder / f"{name}.pem")  # fmt: skip

    @property
    def certificate(self) -> str:
        return (self.folder / f"{self.name}.pem").read_text()

    def pair(self, name: str, days: int = 2) -> tuple[str, str]:
        """Return a new key and its certificate; with negative days, it is over already."""
        key, request, signed = (self.folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
        extensions = self.folder / "extensions"
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-subj", f"/CN={name}", "-keyout", key, "-out", request)  # fmt: skip
        openssl("x509", "-req", "-in", request, "-CA", self.folder / f"{self.name}.pem", "-CAkey",
                self.folder / f"{self.name}.key", "-set_serial", abs(hash(name)) % 10**8,
                "-days", days, "-extfile", extensions, "-out", signed)  # fmt: skip
        return key.read_text(), signed.read_text()

    def tls(self, name: str = "server", days: int = 2, client_verify: bool = False) -> Tls:
        """Return what a server takes."""
        key, certificate = self.pair(name, days)
        return Tls(key, certificate, self.certificate if client_verify else "", client_verify)
