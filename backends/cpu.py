"""What this machine's processor can do."""

from pathlib import Path


def cpu_flags() -> frozenset[str]:
    """The flags of this machine's CPU; empty where it lists none under that name (not x86)."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "flags":
                return frozenset(value.split())
    except OSError:
        pass
    return frozenset()
