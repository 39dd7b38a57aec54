"""What serves at an address of this machine."""

import ipaddress

import psutil


def cores_behind(address: str) -> int | None:
    """Return how many cores the process may use that listens at `host:port`.

    None: that is not known, as it is on another machine, or not of this user.
    """
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or not _is_here(host.strip("[]")):
        return None
    try:
        for each in psutil.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN and each.laddr.port == int(port) and each.pid:
                return len(psutil.Process(each.pid).cpu_affinity())
    except (psutil.Error, OSError):
        pass
    return None


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
