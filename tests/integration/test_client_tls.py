"""https: the same measurement through TLS, and no trust without a certificate to base it on."""

import shutil
import subprocess
from pathlib import Path

import pytest

from backends.base import Endpoint
from backends.http_calls import Unreachable, get
from harness.client import measure
from harness.core.errors import UsageError
from harness.core.tls import Trust
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
    assert (measured.client["stamps"], measured.client["stamps_by_process"]) == ("process", 0)


def test_a_certificate_nobody_vouches_for(certificate: Path, tmp_path: Path) -> None:
    with scripted_server(certificate=certificate) as server:
        measured = measure(job(server.base_url, plan(2), tmp_path), quiet)
    assert list(measured.requests["error"]) == ["connect"] * 2
    assert measured.requests["error_detail"].str.contains("certificate").all()


@pytest.mark.parametrize("verify", [True, False])
def test_trust_can_be_given_by_file_or_not_asked_for(certificate: Path, tmp_path: Path, verify: bool) -> None:
    trust = Trust(verify, str(certificate) if verify else None)
    with scripted_server(certificate=certificate) as server:
        endpoint = Endpoint(server.base_url, "scripted", {}, trust)
        measured = measure(job(server.base_url, plan(2), tmp_path, endpoint=endpoint), quiet)
        assert get(f"{server.base_url}/v1/models", {}, 10, trust).status == 200
        with pytest.raises(Unreachable, match="certificate"):
            get(f"{server.base_url}/v1/models", {}, 10)
    assert measured.requests["ok"].all()


def test_a_file_that_vouches_for_nobody(tmp_path: Path) -> None:
    empty = tmp_path / "ca.pem"
    empty.write_text("nothing")
    for path in (empty, tmp_path / "absent.pem"):
        endpoint = Endpoint("https://127.0.0.1:1", "scripted", {}, Trust(ca_file=str(path)))
        with pytest.raises(UsageError, match=r"backend\.ca_file"):
            measure(job("https://127.0.0.1:1", plan(1), tmp_path, endpoint=endpoint), quiet)
