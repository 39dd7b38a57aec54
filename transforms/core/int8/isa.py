"""What the processor's 8-bit multiplication can do, as the kernel of Linux tells it."""

from pathlib import Path
from typing import Literal, get_args

from deploykit.transforms.core.errors import GraphError

Isa = Literal["auto", "avx2", "vnni"]
ISAS: tuple[Isa, ...] = get_args(Isa)
# Those of Arm are called asimddp and i8mm.
_EXACT = frozenset({"amx_int8", "avx512_vnni", "avx_vnni", "asimddp", "i8mm"})


def flags(path: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Return the instruction sets of the first processor; none where the system does not tell."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return frozenset()
    known = (line.partition(":") for line in lines)
    found = (value for name, _, value in known if name.strip() in ("flags", "Features"))
    return frozenset(next(found, "").split())


def sums_exactly(isa: str) -> bool:
    """Say whether 8-bit products are summed in 32 bits, as VNNI, AMX and Arm's dot products do.

    AVX2 adds the products of two neighbours in 16 bits first, where they may saturate. GraphError:
    there is no such instruction set.
    """
    if isa not in ISAS:
        raise GraphError("not-one-of", what="isa", known=["auto", "avx2", "vnni"], got=isa)
    return isa == "vnni" or (isa == "auto" and not _EXACT.isdisjoint(flags()))
