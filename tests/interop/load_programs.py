"""Programs of other clients that send from 64 threads and receive all of it; what of that took the fast path.

`python -m tests.interop.load_programs rust` builds and runs one: spring, cpp, or rust, which takes minutes to build.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from tests.interop.driver import java
from tests.interop.peers import FireArrow, Peer, address
from tests.interop.toolchain import CPP, cpp_python, rust_load
from tests.support.client_socket import ClientSocket
from tests.support.requests import runtime_info, topic_ext

THREADS, EACH = 64, 100
QUEUES = 4
FIRST_PULLS = QUEUES + 1
"""One for each queue, and for that of the retry topic: before it has its first message, or its group a heartbeat."""
LANGUAGES = {
    "java5": "JAVA",
    "java4": "JAVA",
    "spring": "JAVA",
    "go": "GO",
    "python": "PYTHON",
    "cpp": "CPP",
    "rust": "RUST",
}
PROGRAMS: dict[str, Callable[[Path], list[str]]] = {
    "spring": lambda home: java("spring", "SpringLoad", home, "-Xmx256m"),
    "cpp": lambda home: [str(cpp_python()), str(CPP / "load.py")],
    "rust": lambda home: [str(rust_load())],
}
"""Name → command, which takes name server, topic, group, threads and messages of each thread."""
COUNTS = re.compile(
    r"sends: (\d+) template, (\d+) parsed, (\d+) complete; pulls: (\d+) fast, (\d+) complete(.*)"
)


def counts(peer: Peer, client: str) -> tuple[list[int], dict[str, str]]:
    """Sends that matched a template, were parsed, were complete, and pulls that were fast and complete; the texts."""
    with ClientSocket(address(peer.address)) as connection:
        texts = {
            key: text
            for key, text in runtime_info(connection).items()
            if key.startswith(f"fastPath_{LANGUAGES[client]}_")
        }
    found = [COUNTS.fullmatch(text) for text in texts.values()]
    totals = [sum(int(match[n]) for match in found if match) for n in range(1, 6)]
    return totals, texts


def assert_fast(found: list[int], texts: dict[str, str], has_order: bool = True) -> None:
    """`found` as from `counts`; `has_order`: the client writes the fields of a header in one order."""
    template, parsed, complete, pulls, slow_pulls = found
    sends = template + parsed + complete
    assert template + parsed >= 0.99 * sends, texts
    assert template >= 0.95 * sends or not has_order, texts
    assert slow_pulls <= max(FIRST_PULLS, 0.01 * (pulls + slow_pulls)), texts


def run_load(program: str, home: Path) -> tuple[list[int], dict[str, str]]:
    """Run it against a broker of its own: it must have sent and received everything. Returns the `counts`."""
    with FireArrow(home / "store", {}) as peer:
        with ClientSocket(address(peer.address)) as connection:
            assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("Load", QUEUES)).code == 0
        words = [*PROGRAMS[program](home), peer.name_server, "Load", "load", str(THREADS), str(EACH)]
        done = subprocess.run(words, cwd=home, capture_output=True, text=True, timeout=150, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
        total = THREADS * EACH
        assert json.loads(done.stdout.splitlines()[-1]) == {"sent": total, "received": total}
        found, texts = counts(peer, program)
        assert sum(found[:3]) == total, texts
        peer.stop()
    return found, texts


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        found, texts = run_load(sys.argv[1], Path(folder))
    assert_fast(found, texts)
    print(*(f"{kind}: {text}" for kind, text in texts.items()), sep="\n")
