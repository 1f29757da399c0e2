"""PopsAcross, OrderedPopsAcross: messages popped at one broker, and acknowledged or revived at another one."""

import time
from dataclasses import dataclass

from firearrow._native.store.log.record import Record
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from tests.integration.pops import ack_ext, pop, records
from tests.interop.peers import BROKER
from tests.interop.pending_work import LaterWork, PendingWork, ok, put
from tests.support.client_socket import ClientSocket
from tests.support.requests import topic_ext

HIDDEN_S = 3600


@dataclass
class PopsAcross(LaterWork):
    """Six are popped for `popped_s`, two of them acknowledged, and one for a long time, acknowledged at the end."""

    popped_s: int = 4

    topic = "%RETRY%Makers_Made"
    near = ("2", "3", "4")
    never = ("0", "1", "5")

    def leave(self, client: ClientSocket) -> None:
        self._over_at = time.monotonic() + self.popped_s
        ok(client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("Made", 1)))
        for number in range(6):
            put(client, "Made", self.body(f"{number}"))
        taken = self._pop(client, maxMsgNums="5", invisibleTime=f"{self.popped_s}000")
        assert len(records(taken)) == 5
        for record in records(taken)[:2]:
            ok(client.ask(RequestCode.ACK_MESSAGE, acknowledgement(taken, record)))
        kept = self._pop(client, maxMsgNums="1", invisibleTime=f"{HIDDEN_S}000")
        [record] = records(kept)
        self._kept = acknowledgement(kept, record)

    def _pop(self, client: ClientSocket, **more: str) -> RemotingCommand:
        return ok(pop(client, "Made", consumerGroup="Makers", queueId="0", **more))

    def is_over(self) -> bool:
        """Must not be true before Apache runs: of timer messages that are overdue at its start it delivers some out of
        order, and an acknowledgement that arrives before its check point is lost there."""
        return time.monotonic() > self._over_at

    def verify(self, client: ClientSocket) -> None:
        super().verify(client)
        ok(client.ask(RequestCode.ACK_MESSAGE, self._kept))


@dataclass
class OrderedPopsAcross(PendingWork):
    """Two of four are popped in order: until they are acknowledged no client gets the others."""

    def leave(self, client: ClientSocket) -> None:
        ok(client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(f"{self.mark}Ordered", 1)))
        for number in range(4):
            put(client, f"{self.mark}Ordered", self.body(f"{number}"))
        taken = self._pop(client, "left")
        assert [record.body for record in records(taken)] == [self.body("0"), self.body("1")]
        self._taken = [acknowledgement(taken, record) for record in records(taken)]

    def _pop(self, client: ClientSocket, attempt: str) -> RemotingCommand:
        return pop(
            client,
            f"{self.mark}Ordered",
            consumerGroup="Makers",
            queueId="0",
            order="true",
            maxMsgNums="2",
            invisibleTime=f"{HIDDEN_S}000",
            attemptId=attempt,
        )

    def verify(self, client: ClientSocket) -> None:
        assert self._pop(client, "too early").code == ResponseCode.POLLING_TIMEOUT
        for one in self._taken:
            ok(client.ask(RequestCode.ACK_MESSAGE, one))
        assert [record.body for record in records(self._pop(client, "next"))] == [
            self.body("2"),
            self.body("3"),
        ]


def acknowledgement(popped: RemotingCommand, record: Record) -> dict[str, str]:
    """Of a message that `Makers` popped. Receipts name the broker."""
    ext = ack_ext(popped, record)
    words = ext["extraInfo"].split()
    words[5] = BROKER
    return ext | {"consumerGroup": "Makers", "extraInfo": " ".join(words)}
