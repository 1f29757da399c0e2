"""Read the messages of a queue as a consumer does."""

from firearrow._native.store.log.record import Record, decode
from firearrow._native.wire.codes import ResponseCode
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import pull


def read_messages(connection: ClientSocket, topic: str, queue_id: int = 0) -> list[Record]:
    """Every message of a queue."""
    found: list[Record] = []
    while (answer := pull(connection, topic, len(found), queue_id)).code == 0:
        at = 0
        while at < len(answer.body):
            size = int.from_bytes(answer.body[at : at + 4], "big")
            found.append(decode(answer.body[at : at + size]))
            at += size
    assert answer.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED), answer.remark
    return found


def wait_for_messages(connection: ClientSocket, topic: str, count: int, within_s: float = 20) -> list[Record]:
    """The messages of queue 0, once there are `count`."""
    found: list[Record] = []

    def all_stored() -> bool:
        found[:] = read_messages(connection, topic)
        return len(found) >= count

    eventually(all_stored, within_s, lambda: f"{len(found)} of {count}")
    return found
