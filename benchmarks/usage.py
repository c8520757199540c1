"""What a process has used so far."""

from __future__ import annotations

import resource
from pathlib import Path


def peak_mib() -> float:
    """The largest memory of this process so far, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux counts the parent's in ru_maxrss, if that was larger
        line = next(li for li in status.read_text().splitlines() if li.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # macOS: bytes
