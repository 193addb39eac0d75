"""https: the same measurement through TLS, and no trust without a certificate to base it on."""

import shutil
import subprocess
from pathlib import Path

import pytest

from harness.client import measure
from tests.support.client_jobs import job, plan, quiet
from tests.support.fixtures import scripted_server


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.fail("These tests need the openssl command (Debian: apt-get install openssl).")
    folder = tmp_path_factory.mktemp("tls")
    command = f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1"
    subprocess.run(
        [
            *command.split(),
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            str(folder / "key"),
            "-out",
            str(folder / "cert"),
        ],
        check=True,
        capture_output=True,
    )
    both = folder / "both.pem"
    both.write_bytes((folder / "key").read_bytes() + (folder / "cert").read_bytes())
    return both


def test_https(certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted_server(certificate=certificate) as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        measured = measure(job(server.base_url, plan(20), tmp_path), quiet)
    assert measured.requests["ok"].all() and (measured.requests["output_tokens"] == 5).all()
    assert measured.client["connections_opened"] == 4


def test_a_certificate_nobody_vouches_for(certificate: Path, tmp_path: Path) -> None:
    with scripted_server(certificate=certificate) as server:
        measured = measure(job(server.base_url, plan(2), tmp_path), quiet)
    assert list(measured.requests["error"]) == ["connect"] * 2
    assert measured.requests["error_detail"].str.contains("certificate").all()
