"""PendingWork: work that one broker begins and another one finishes on the same store, by raw frames.

`leave` begins it at the first; `finish` waits at the second until what was pending has arrived; `verify` comes last:
nothing arrived twice, and nothing that must not. Bodies and keys begin with the work's mark, so that several can be
pending at once. Topics are those of the recorded stores; what is near is due some seconds after `leave`.
"""

import json
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from firearrow._native.store.log.record import Record, decode
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from tests.integration.pops import records
from tests.integration.test_requests import item
from tests.integration.test_send_back import back, offset_in
from tests.integration.test_timers import recall, timed
from tests.interop.contents import read
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.messages import read_messages
from tests.support.requests import pull, send_ext

WAIT_S = 60
NEAR_S, FAR_S = 5, 86_400
SQL, TAG = {"expressionType": "SQL92", "subscription": "a = 5"}, "ours"


@dataclass
class PendingWork(ABC):
    mark: str

    @abstractmethod
    def leave(self, client: ClientSocket) -> None: ...

    def finish(self, client: ClientSocket) -> None:  # noqa: B027
        """Nothing, unless something is pending."""

    @abstractmethod
    def verify(self, client: ClientSocket) -> None: ...

    def body(self, what: str) -> bytes:
        return f"{self.mark} {what}".encode()


@dataclass
class LaterWork(PendingWork):
    """Messages that the broker delivers to `topic`, each once: `near` and `never` are bodies."""

    topic: ClassVar[str]
    near: ClassVar[tuple[str, ...]]
    never: ClassVar[tuple[str, ...]] = ()

    def finish(self, client: ClientSocket) -> None:
        await_bodies(client, self.topic, [self.body(what) for what in self.near])

    def verify(self, client: ClientSocket) -> None:
        found = Counter(bodies(client, self.topic))
        assert [found[self.body(what)] for what in self.near] == [1] * len(self.near), self
        come = [what for what in self.never if self.body(what) in found]
        assert not come, f"{self}: {come} came"


@dataclass
class Delayed(LaterWork):
    near_level: int = 2
    far_level: int = 18

    topic = "GoldenDelay"
    near = ("delayed",)
    never = ("far",)

    def leave(self, client: ClientSocket) -> None:
        put(client, self.topic, self.body("delayed"), DELAY=str(self.near_level))
        put(client, self.topic, self.body("far"), DELAY=str(self.far_level))

    def verify(self, client: ClientSocket) -> None:
        super().verify(client)
        waiting = [record.body for record in read_messages(client, "SCHEDULE_TOPIC_XXXX", self.far_level - 1)]
        assert waiting.count(self.body("far")) == 1


@dataclass
class Timed(LaterWork):
    topic = "GoldenTimer"
    near = ("timed",)
    never = ("far", "recalled")

    def leave(self, client: ClientSocket) -> None:
        put(client, self.topic, self.body("timed"), TIMER_DELAY_SEC=str(NEAR_S))
        put(client, self.topic, self.body("far"), TIMER_DELAY_SEC=str(FAR_S))
        sent = put(client, self.topic, self.body("recalled"), TIMER_DELAY_SEC=str(NEAR_S))
        ok(recall(client, self.topic, sent.ext["recallHandle"]))


@dataclass
class SentBack(LaterWork):
    """A message that a consumer failed on, and one that went to the dead letters."""

    level: int = 2

    topic = "%RETRY%Workers"
    near = ("hard",)

    def leave(self, client: ClientSocket) -> None:
        for what, level in (("hard", self.level), ("dead", -1)):
            sent = put(client, "Work", self.body(what))
            ok(back(client, offset_in(sent.ext["msgId"]), level=level))

    def verify(self, client: ClientSocket) -> None:
        super().verify(client)
        assert bodies(client, "%DLQ%Workers").count(self.body("dead")) == 1


@dataclass
class Sent(PendingWork):
    """A message to a topic of each kind, found by its keys; and an offset that was committed."""

    def leave(self, client: ClientSocket) -> None:
        lmqs = {"INNER_MULTI_DISPATCH": "%LMQ%one,%LMQ%three"}
        for topic, more in (
            ("GoldenPlain", {}),
            ("GoldenOrder", {}),
            ("GoldenMulti", lmqs),
            ("GoldenSql", {"a": "5"}),
        ):
            put(
                client,
                topic,
                self.body(topic),
                KEYS=f"{self.mark}-key both",
                UNIQ_KEY=f"{self.mark}-{topic}",
                TAGS=TAG,
                **more,
            )
        batch = b"".join(item(self.body(f"{n}"), f"KEYS\x01{self.mark}{n}\x02".encode()) for n in range(3))
        ok(client.ask(RequestCode.SEND_BATCH_MESSAGE, send_ext("GoldenBatch", m="true"), batch))
        binary = send_ext("GoldenBinary")
        ok(client.ask(RequestCode.SEND_MESSAGE_V2, binary, self.body("binary"), serializer=1))
        group = json.dumps({"groupName": f"{self.mark}Readers", "retryMaxTimes": 5}).encode()
        ok(client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group))
        ok(client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, self._place() | {"commitOffset": "1"}))

    def _place(self) -> dict[str, str]:
        return {"consumerGroup": f"{self.mark}Readers", "topic": "GoldenPlain", "queueId": "0"}

    def verify(self, client: ClientSocket) -> None:
        for topic in ("GoldenPlain", "GoldenOrder", "GoldenMulti", "GoldenSql"):
            for key in (f"{self.mark}-key", "both", f"{self.mark}-{topic}"):
                found = [record.body for record in found_by(client, topic, key)]
                assert self.body(topic) in found, (topic, key)
        for number in range(3):
            [record] = found_by(client, "GoldenBatch", f"{self.mark}{number}")
            assert record.body == self.body(f"{number}")
        assert bodies(client, "GoldenBinary").count(self.body("binary")) == 1
        assert ok(client.ask(RequestCode.QUERY_CONSUMER_OFFSET, self._place())).ext["offset"] == "1"


@dataclass
class Filtered(PendingWork):
    """What SQL92 and a tag select, of older and new messages."""

    def leave(self, client: ClientSocket) -> None:
        put(client, "GoldenSql", self.body("five"), a="5", TAGS=TAG)
        put(client, "GoldenSql", self.body("six"), a="6", TAGS="other")
        await_bodies(client, "GoldenSql", [self.body("six")])
        self._seen = [self._through(client, **of) for of in (SQL, {"subscription": TAG})]
        assert all(self.body("five") in found and self.body("six") not in found for found in self._seen)

    def _through(self, client: ClientSocket, **of: str) -> list[bytes]:
        return [
            record.body for queue in range(4) for record in records(pull(client, "GoldenSql", 0, queue, **of))
        ]

    def verify(self, client: ClientSocket) -> None:
        for seen, of in zip(self._seen, (SQL, {"subscription": TAG}), strict=True):
            assert [one for one in self._through(client, **of) if one in seen] == seen


def put(client: ClientSocket, topic: str, body: bytes, **properties: str) -> RemotingCommand:
    return ok(timed(client, topic, body, **properties))


def ok(answer: RemotingCommand) -> RemotingCommand:
    assert answer.code == 0, answer.remark
    return answer


def bodies(client: ClientSocket, topic: str) -> list[bytes]:
    """Of a topic of up to four queues."""
    return [decode(one).body for queue in range(4) for one in read(client, topic, queue)]


def await_bodies(client: ClientSocket, topic: str, wanted: list[bytes]) -> None:
    def missing() -> set[bytes]:
        return set(wanted) - set(bodies(client, topic))

    eventually(lambda: not missing(), WAIT_S, lambda: f"{topic}: {missing()}")


def found_by(client: ClientSocket, topic: str, key: str) -> list[Record]:
    """The index entries of that key."""
    ext = {"topic": topic, "key": key, "maxNum": "64", "beginTimestamp": "0", "endTimestamp": str(1 << 62)}
    return records(client.ask(RequestCode.QUERY_MESSAGE, ext))
