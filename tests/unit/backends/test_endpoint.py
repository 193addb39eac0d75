"""Servers that somebody else runs: their names for things, and what is never written down."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from backends.process import free_port
from backends.registry import backend_names, backend_options, make_backend
from backends.running_server import idle_settings
from backends.serving.metrics import expose
from harness.core import metric_names as names
from harness.core.errors import EndpointError, UsageError
from harness.core.geometry import ModelGeometry
from harness.core.model_store import ModelFiles
from tests.support.backends import endpoint, unknown, vllm
from tests.support.http_server import QuietHandler, served

_MODEL = ModelFiles("any", Path("/"), Path("/"), ModelGeometry(1, 1, 1, 1, 1, 1), "0")


@contextmanager
def listing(status: int, body: bytes) -> Iterator[tuple[str, list[str | None]]]:
    """A server whose /v1/models answers this; it keeps the keys it was shown."""
    keys: list[str | None] = []

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            keys.append(self.headers["Authorization"])
            self.send_response(status if self.path == "/v1/models" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with served(Handler) as address:
        yield address, keys


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_the_url_may_end_in_v1_or_not_and_the_model_is_asked_for(suffix: str) -> None:
    with listing(200, b'{"data": [{"id": "tiny"}]}') as (url, _):
        found = endpoint(url + suffix).endpoint(_MODEL, 0)
    assert (found.base_url, found.model_name, dict(found.headers)) == (url, "tiny", {})


def test_a_password_in_the_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError, match="user or a password") as raised:
        endpoint("http://me:sesame@example.org").check(_MODEL)
    assert "sesame" not in str(raised.value)


def test_settings_that_a_running_server_does_not_get_are_named() -> None:
    url = "https://example.org"
    assert idle_settings(vllm().options) == idle_settings(endpoint(url).options) == ()
    idle = idle_settings(vllm(base_url=url, kv_dtype="fp8", weight_dtype=None).options)
    assert {"dtype", "kv_dtype", "kv_bytes", "prefix_cache"} <= set(idle)
    assert not {"weight_dtype", "python", "seed"} & set(idle)


def test_a_named_model_is_not_asked_for() -> None:
    found = endpoint("https://example.org/v1", model_name="big").endpoint(_MODEL, 0)
    assert (found.base_url, found.model_name) == ("https://example.org", "big")


def test_the_key_comes_from_the_environment_and_is_shown_to_the_server_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_KEY", "s3cret")
    with listing(200, b'{"data": [{"id": "tiny"}]}') as (url, keys):
        backend = endpoint(url, api_key_env="MY_KEY")
        found = backend.endpoint(_MODEL, 0)
    assert keys == ["Bearer s3cret"]
    assert found.headers == {"Authorization": "Bearer s3cret"}
    assert "s3cret" not in repr(found) + repr(backend.options) + str(vars(backend))


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, b"", "OPENAI_API_KEY"),
        (404, b"<html>nothing here</html>", r"404 \(<html>nothing here"),
        (200, b"no json", r"backend\.model_name"),
        (200, b'{"data": []}', r"backend\.model_name"),
        (200, b'{"data": [{"id": "a"}, {"id": "b"}]}', "a, b"),
    ],
)
def test_what_to_do_is_said_when_the_model_cannot_be_asked_for(status: int, body: bytes, words: str) -> None:
    with listing(status, body) as (url, _), pytest.raises(EndpointError, match=words):
        endpoint(url).endpoint(_MODEL, 0)


def test_an_absent_server_is_an_error() -> None:
    with pytest.raises(EndpointError, match=r"No server answers(.|\n)*backend\.base_url"):
        endpoint(f"http://127.0.0.1:{free_port()}").endpoint(_MODEL, 0)


@pytest.mark.parametrize(
    ("url", "changes", "words"),
    [
        (None, {}, r"backend\.base_url"),
        ("localhost:8000", {}, "http://"),
        ("http://h", {"api": "grpc"}, "completions or chat"),
        ("http://h", {"kv_dtype": "f16"}, r"backend\.kv_dtype"),
        ("http://h", {"prefix_cache": False}, r"backend\.prefix_cache"),
        ("http://h", {"extra_args": ["--x"]}, r"backend\.extra_args"),
    ],
)
def test_what_cannot_be_honoured_is_a_usage_error(
    url: str | None, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        endpoint(url, **changes).check(_MODEL)


def test_capabilities_are_as_told() -> None:
    backend = endpoint("http://h", ignore_eos=False, return_token_ids=True)
    backend.check(_MODEL)
    assert backend.capabilities().ignore_eos is False
    assert backend.request_extras() == {"return_token_ids": True}
    assert backend.launch(_MODEL, 1, 1) is None
    assert endpoint("http://h", api="chat").capabilities().prompt_logprobs is False


def test_our_own_metrics_come_back_as_they_were_exposed() -> None:
    values = {name: float(number) for number, name in enumerate([*names.GAUGES, *names.COUNTERS])}
    assert endpoint("http://h").common_metrics(expose(values)[0].decode()) == values
    some = {names.KV_USED_BYTES: 7.0}
    assert endpoint("http://h").common_metrics(expose(some)[0].decode()) == some


@pytest.mark.parametrize("text", ["", "<html></html>", '{"a": 1}', "x{ 3"])
def test_what_is_no_exposition_gives_nothing(text: str) -> None:
    assert endpoint("http://h").common_metrics(text) == {}


def test_the_registry_makes_each_backend_and_lists_them_for_a_wrong_name() -> None:
    assert set(backend_options()) == set(backend_names()) >= {"endpoint", "openvino"}
    made = make_backend(endpoint("http://h").options)
    assert type(made).__name__ == "EndpointBackend"
    with pytest.raises(UsageError, match=r"vlm is unknown.*endpoint, .*openvino"):
        make_backend(unknown())
