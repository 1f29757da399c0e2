"""Requests of a popping client, in our times: when it popped, and how long messages are to be invisible.

Invisible times for which the recording waited are ten times shorter here. Learns from every pop that both sides
answered; a receipt and an acknowledgement identify their pop by its time.
"""

import time

from firearrow._native.protocol.fastjson import dumps, loads
from firearrow._native.wire.command import RemotingCommand

POP, ACK, CHANGE, BATCH_ACK = 200050, 200051, 200053, 200151
WALKED = ("startOffsetInfo", "msgOffsetInfo")
AWAITED_MS, SHORTER = 30_000, 10


def shorter(invisible_ms: int) -> int:
    return invisible_ms // SHORTER if invisible_ms <= AWAITED_MS else invisible_ms


def timeless(receipt: object) -> list[str] | None:
    """The parts of a receipt without its times; None if it is malformed."""
    words = str(receipt).split(" ")
    return [words[0], *words[3:]] if len(words) == 8 else None


def in_order(ext: dict[str, str]) -> dict[str, str]:
    """A response's fields with its queues by their number, not in the order of the walk."""
    return ext | {name: ";".join(sorted(ext[name].split(";"))) for name in WALKED if name in ext}


class Pops:
    def __init__(self) -> None:
        self._pops: dict[str, tuple[str, str]] = {}

    def ask(self, request: RemotingCommand, answer: RemotingCommand | None) -> None:
        """Change the request to one of ours. A pop that may begin at any queue requests the one where Apache's
        began at random, unless that returned everything."""
        ext = request.ext
        if request.code == POP:
            ext["bornTime"] = str(time.time_ns() // 1_000_000)
            info = "" if answer is None else answer.ext.get("msgOffsetInfo", "")
            if info.startswith("0 ") and ";" not in info:
                ext["queueId"] = info.split(" ")[1]
        if "invisibleTime" in ext and request.code in (POP, CHANGE):
            ext["invisibleTime"] = str(shorter(int(ext["invisibleTime"])))
        if "extraInfo" in ext:
            words = ext["extraInfo"].split(" ")
            words[1], words[3] = self._pops.get(words[1], (words[1], words[3]))
            words[2] = str(shorter(int(words[2])))
            ext["extraInfo"] = " ".join(words)
        if request.code == BATCH_ACK:
            body = loads(request.body)
            for ack in body["acks"]:
                pop, queue = self._pops.get(str(ack["pt"]), (ack["pt"], ack["rq"]))
                ack["pt"], ack["rq"], ack["it"] = int(pop), int(queue), shorter(ack["it"])
            request.body = dumps(body)

    def learn(self, theirs: RemotingCommand, ours: RemotingCommand | None) -> None:
        """Two responses to the same request."""
        if ours is not None and "popTime" in theirs.ext and "popTime" in ours.ext:
            self._pops[theirs.ext["popTime"]] = ours.ext["popTime"], ours.ext["reviveQid"]
