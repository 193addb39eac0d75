"""What a command imports to say its help."""

import json
import subprocess
import sys
from dataclasses import dataclass

_PROBE = """
import json, sys
from {} import main
status = main(["--help"])
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
sys.exit(status)
"""


@dataclass(frozen=True)
class Help:
    """said: on standard output. modules: all that were imported by then."""

    said: str
    modules: frozenset[str]


def help_of(module: str) -> Help:
    """`module.main(["--help"])` in an interpreter of its own, which must end with 0."""
    command = [sys.executable, "-c", _PROBE.format(module)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Help(done.stdout, frozenset(json.loads(done.stderr)))
