"""AcknowledgedMessages: what a broker acknowledged; `check` compares it with what the broker has. One thread."""

from firearrow._native.wire.codes import RequestCode, ResponseCode
from tests.support.client_socket import ClientSocket
from tests.support.requests import pull, records, send, topic_ext

Position = tuple[str, int, int]
GROUP = "AcknowledgedMessages"


class AcknowledgedMessages:
    """`stored`: (topic, queue, offset) → body of every message that was acknowledged; `committed`: of `GROUP`."""

    def __init__(self) -> None:
        self.stored: dict[Position, bytes] = {}
        self.committed: dict[tuple[str, int], int] = {}
        self._asked: dict[tuple[str, int], int] = {}
        self.topics: set[str] = set()
        self.refusals: list[tuple[int, str]] = []
        self._number = 0

    def send(self, connection: ClientSocket, topic: str, size: int = 100, queue_id: int = 0) -> int:
        """One message of about that size; returns the response code."""
        self._number += 1
        body = b"%d." % self._number + b"x" * size
        answer = send(connection, topic, body, queue_id)
        if answer.code == ResponseCode.SUCCESS:
            position = topic, int(answer.ext["queueId"]), int(answer.ext["queueOffset"])
            assert position not in self.stored, f"{position} was assigned twice"
            self.stored[position] = body
        else:
            self.refusals.append((answer.code, answer.remark or ""))
        return answer.code

    def commit(self, connection: ClientSocket, topic: str, queue_id: int, queue_offset: int) -> int:
        ext = {
            "consumerGroup": GROUP,
            "topic": topic,
            "queueId": str(queue_id),
            "commitOffset": str(queue_offset),
        }
        self._asked[topic, queue_id] = queue_offset
        code = connection.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext).code
        if code == ResponseCode.SUCCESS:
            self.committed[topic, queue_id] = queue_offset
        return code

    def make_topic(self, connection: ClientSocket, topic: str) -> tuple[int, str]:
        answer = connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic))
        if answer.code == ResponseCode.SUCCESS:
            self.topics.add(topic)
        return answer.code, "" if answer.code == 0 else answer.remark or ""

    def know_group(self, connection: ClientSocket, topic: str) -> None:
        """A pull creates the group, so that it may commit."""
        assert pull(connection, topic, consumerGroup=GROUP).code in (0, 19)

    def check(self, connection: ClientSocket) -> None:
        """All of it is there, and nothing that was never sent is between."""
        for topic, queue_id in sorted({(topic, queue_id) for topic, queue_id, _ in self.stored}):
            self._check_queue(connection, topic, queue_id)
        for (topic, queue_id), committed in self.committed.items():
            ext = {"consumerGroup": GROUP, "topic": topic, "queueId": str(queue_id)}
            answer = connection.ask(RequestCode.QUERY_CONSUMER_OFFSET, ext)
            asked = self._asked[topic, queue_id]  # if the broker died before it responded, it may be this one
            assert answer.ext.get("offset") in (str(committed), str(asked)), (topic, queue_id, committed)
        for topic in self.topics:
            assert connection.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == 0, topic

    def _check_queue(self, connection: ClientSocket, topic: str, queue_id: int) -> None:
        at = 0
        found: dict[int, bytes] = {}
        while (answer := pull(connection, topic, at, queue_id)).code == ResponseCode.SUCCESS:
            found |= {record.queue_offset: record.body for record in records(answer.body)}
            at = int(answer.ext["nextBeginOffset"])
        assert list(found) == list(range(len(found)))
        numbers = [int(body.partition(b".")[0]) for body in found.values()]
        assert len(set(numbers)) == len(numbers), "a message is stored twice"
        assert all(1 <= number <= self._number for number in numbers), (
            "a message is stored that was never sent"
        )
        for (of_topic, of_queue, queue_offset), body in self.stored.items():
            if (of_topic, of_queue) == (topic, queue_id):
                assert found.get(queue_offset) == body, (topic, queue_id, queue_offset)
