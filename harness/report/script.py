"""The one script of a page, and its hash: the only one that the page's policy lets run."""

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path

_PARTS = ("sort.js", "filter.js")
_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True)
class Script:
    """text: to stand between <script> and </script> as it is. source: of the policy, by W3C's Content Security Policy
    level 3: SHA-256 over the text's UTF-8 bytes, in base64.
    """

    text: str
    source: str


def page_script() -> Script:
    """Nothing of a record is in it: the script finds what it needs in the page's attributes."""
    text = '"use strict";\n' + "".join((_TEMPLATES / part).read_text(encoding="utf-8") for part in _PARTS)
    digest = hashlib.sha256(text.encode()).digest()
    return Script(text, f"'sha256-{base64.b64encode(digest).decode()}'")
