"""What a figure depends on: the machine, the versions, and the memory of this process."""

import os
import platform
import re
import resource
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("jobi-tf", "tensorflow", "keras", "numpy")


def machine() -> dict[str, Any]:
    """Returns model of the processor, cores, memory in bytes, system, and how busy it is at the moment."""
    found = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return {
        "cpu": found[1] if found else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
        "load": os.getloadavg()[0],
    }


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages whose speed is measured."""
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def peak_memory() -> float:
    """Returns the largest resident memory that this process ever had, in MB.

    `ru_maxrss` would do, but on Linux a child begins with its parent's.
    """
    if found := re.search(r"^VmHWM:\s*(\d+) kB$", _read("/proc/self/status"), re.MULTILINE):
        return int(found[1]) * 1024 / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def resident_memory() -> float:
    """Returns the resident memory of this process at the moment, in MB; where that cannot be read, the peak."""
    if found := re.search(r"^VmRSS:\s*(\d+) kB$", _read("/proc/self/status"), re.MULTILINE):
        return int(found[1]) * 1024 / 1e6
    return peak_memory()


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""
