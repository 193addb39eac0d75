"""Names of runs: they start with a letter, sort by time and can be read."""

import re
import secrets
from datetime import UTC, datetime

SAFE_ID = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_FOREIGN = re.compile(r"[^a-z0-9.]+")
_LONGEST_WORD = 24


def new_run_id(backend: str, workload: str, now: datetime | None = None) -> str:
    """For example r20261130-042501-openvino-chat-ab12: UTC to the second, names, 16 random bits."""
    instant = (now or datetime.now(UTC)).astimezone(UTC)
    words = [instant.strftime("r%Y%m%d-%H%M%S"), _word(backend), _word(workload), secrets.token_hex(2)]
    return "-".join(word for word in words if word)


def _word(name: str) -> str:
    """Only characters that are safe in a path, a URL and a shell."""
    return _FOREIGN.sub("-", name.lower()).strip("-.")[:_LONGEST_WORD]
