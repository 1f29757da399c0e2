"""The whole recording, replayed once to a real process: every response with its differences and their names."""

import functools
import os
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from firearrow._native.wire.command import RemotingCommand
from tests.support.broker_process import BrokerProcess
from tests.wire_golden.comparison import Comparison, Difference
from tests.wire_golden.conversation import Event, events
from tests.wire_golden.differences import name_of
from tests.wire_golden.player import Address, Exchange, Player
from tests.wire_golden.translation import Translation

AS_RECORDED = {
    "brokerName": "broker-a",
    "brokerClusterName": "DefaultCluster",
    "brokerIP1": "127.0.0.2",
    "defaultTopicQueueNums": "4",
    "traceTopicEnable": "true",
    "mappedFileSizeCommitLog": "262144",
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "1000",
    "enableLmq": "true",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "2500",
    "enableMultiDispatch": "true",
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "mappedFileSizeTimerLog": "10400",
    "fileReservedTime": "876000",
}
"""Settings of the recorded broker that we have, too. It kept files for 72 hours: a half message as old as the recording
would not be checked any more."""


@dataclass
class Replay:
    exchanges: list[tuple[Exchange, list[tuple[Difference, str | None]]]]
    surplus: list[tuple[Event, RemotingCommand]]
    """Frames that we sent and Apache did not, with the last event of their connection."""
    translation: Translation
    seconds: float

    @property
    def equal(self) -> int:
        return sum(not differences for _, differences in self.exchanges)

    def counts(self) -> dict[str, int]:
        """Frames by the name of a difference in them."""
        found: dict[str, int] = {}
        for _, differences in self.exchanges:
            for name in {name for _, name in differences if name is not None}:
                found[name] = found.get(name, 0) + 1
        return found

    def unnamed(self) -> list[Difference]:
        return [one for _, differences in self.exchanges for one, name in differences if name is None]


@functools.cache
def replayed() -> Replay:
    started = time.monotonic()
    arguments = [word for key, value in AS_RECORDED.items() for word in ("--set", f"{key}={value}")]
    with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder) / "store", *arguments) as broker:
        assert broker.name_server is not None
        lone, address = _name_server(folder)
        try:
            recorded = events()
            translation = Translation(broker.address[1], broker.name_server[1])
            player = Player(recorded, broker, address, translation)
            compare = Comparison(translation)
            exchanges = [
                (one, list(compare(one))) for one in player.play()
            ]  # what it learns is requested later
        finally:
            lone.kill()
            lone.communicate()
    named = [(one, [(d, name_of(d, translation)) for d in found]) for one, found in exchanges]
    return Replay(named, player.surplus, translation, time.monotonic() - started)


def _name_server(home: str) -> tuple["subprocess.Popen[str]", Address]:
    """A process that is only a name server."""
    code = "from firearrow.client.cli.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "namesrv", "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"HOME": home},
    )
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 30)[0]
    host, port = process.stdout.readline().split()[4].rstrip(",").rsplit(":", 1)
    return process, (host, int(port))
