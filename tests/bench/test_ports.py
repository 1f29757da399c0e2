"""Ports are given once: a server that starts later finds its port and the ones beside it free."""

import socket
import subprocess
import sys

import pytest

from bench import ports
from bench.ports import BESIDE, free_port


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """The only one that is left to give, and held by this process."""
    port = free_port()
    monkeypatch.setattr(ports, "BLOCKS", range(port + BESIDE.start, port + BESIDE.start + 1))
    return port


def test_no_port_is_given_twice(port: int) -> None:
    with pytest.raises(RuntimeError, match="no free port"):
        free_port()
    block = f"range({port + BESIDE.start}, {port + BESIDE.start + 1})"
    other = f"from bench import ports; ports.BLOCKS = {block}; ports.free_port()"
    done = subprocess.run([sys.executable, "-c", other], capture_output=True, text=True, check=False)
    assert "no free port" in done.stderr


@pytest.mark.parametrize("distance", BESIDE)
def test_a_port_with_a_taken_neighbour_is_not_given(port: int, distance: int) -> None:
    ports._held.pop().close()
    with socket.create_server(("127.0.0.1", port + distance)), pytest.raises(RuntimeError):
        free_port()
    assert free_port() == port
