"""Addresses, heads and bodies, before anything is sent."""

import pytest

from harness.client.address import Address
from harness.client.bodies import request_bytes, request_head
from harness.core.errors import UsageError


@pytest.mark.parametrize(
    ("url", "address", "authority"),
    [
        ("http://h", Address("h", 80, False, ""), "h"),
        ("http://h:8000", Address("h", 8000, False, ""), "h:8000"),
        ("http://h:8000/", Address("h", 8000, False, ""), "h:8000"),
        ("https://h/v1", Address("h", 443, True, ""), "h"),
        ("https://h:8443/llm/v1/", Address("h", 8443, True, "/llm"), "h:8443"),
        ("http://[::1]:80", Address("::1", 80, False, ""), "[::1]"),
        ("http://[::1]:81", Address("::1", 81, False, ""), "[::1]:81"),
    ],
)
def test_addresses(url: str, address: Address, authority: str) -> None:
    assert Address.parse(url) == address
    assert address.authority == authority


def test_a_request_on_the_wire() -> None:
    head = request_head(
        Address.parse("http://h:1/x"), "/v1/completions", {"Authorization": "Bearer k", "accept": "a"}
    )
    lines = request_bytes(head, b"{}").decode().split("\r\n")
    assert lines[0] == "POST /x/v1/completions HTTP/1.1"
    assert lines[-3:] == ["Content-Length: 2", "", "{}"]
    assert "Host: h:1" in lines and "Authorization: Bearer k" in lines and "accept: a" in lines
    assert not any(line.startswith("Accept:") for line in lines)  # a given header replaces ours


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\n", "a\0"])
def test_a_header_cannot_break_out_of_its_line(value: str) -> None:
    with pytest.raises(UsageError, match="Authorization") as caught:
        request_head(Address.parse("http://h"), "/v1/completions", {"Authorization": value})
    assert value not in str(caught.value)  # the key is not shown
