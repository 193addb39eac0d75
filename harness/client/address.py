"""Where requests go: a base URL taken apart."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from harness.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Address:
    """Host, port and path prefix of a server; `tls` for https."""

    host: str
    port: int
    tls: bool
    prefix: str

    @classmethod
    def parse(cls, base_url: str) -> "Address":
        """Take `base_url` apart, with or without /v1 at its end. Raises UsageError if it is no URL."""
        try:
            parts = urlsplit(base_url)
            port = parts.port
        except ValueError as error:
            raise UsageError(f"backend.base_url={base_url!r} is no URL ({error}).") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(
                f"backend.base_url={base_url!r} is no http or https URL. Give one like http://127.0.0.1:8000."
            )
        tls = parts.scheme == "https"
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.hostname, port or (443 if tls else 80), tls, prefix)

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"
