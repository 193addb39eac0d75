"""Fixtures of the integration tests."""

from collections.abc import Iterator

import pytest

from tests.support.fixtures import ScriptedServer, scripted_server


@pytest.fixture(scope="module")
def shared_server() -> Iterator[ScriptedServer]:
    """One scripted server for a module; each test plays its own scripts on it."""
    with scripted_server() as server:
        yield server


@pytest.fixture
def server(shared_server: ScriptedServer) -> ScriptedServer:
    """The module's scripted server with the default script and an empty record."""
    shared_server.play()
    return shared_server
