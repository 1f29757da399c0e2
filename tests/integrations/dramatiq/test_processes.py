"""A broker that was made and used before a fork works in both processes."""

import subprocess
import sys
from pathlib import Path

from tests.integrations.workers import ROOT, Workers
from tests.interop.peers import Peer
from tests.support.eventually import eventually

FORKING = """
import os
from tests.integrations.programs.dramatiq_program import broker, work

work.send(0, 0)
child = os.fork()
work.send(1 if child else 2, 0)
broker.close()
if child:
    assert os.waitpid(child, 0)[1] == 0
else:
    os._exit(0)
"""


def test_a_fork(firearrow_site: Peer, name: str, tmp_path: Path) -> None:
    with Workers("dramatiq", firearrow_site.name_server, name, tmp_path) as workers:
        done = subprocess.run(
            [sys.executable, "-c", FORKING],
            cwd=ROOT,
            env=workers.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        eventually(lambda: {step.number for step in workers.steps("end")} == {0, 1, 2}, 60, workers.text)
