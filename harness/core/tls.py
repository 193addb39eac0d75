"""Whom an https server must convince."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Trust:
    """verify: refuse a server whose certificate nobody vouches for. ca_file: who may vouch (PEM).

    None asks the system, whose own list the environment variable SSL_CERT_FILE replaces for one command.
    """

    verify: bool = True
    ca_file: str | None = None

    def context(self) -> ssl.SSLContext:
        """For connections to a server. Raises UsageError for a file that holds no certificates."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file and str(Path(self.ca_file).expanduser()))
        except OSError as error:  # SSLError is one
            raise UsageError(
                f"backend.ca_file={self.ca_file} cannot be used ({error.strerror or error}). "
                "Give a PEM file of the certificates to trust."
            ) from error
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context
