"""RawProducer: sends messages by plain frames, so that tests of consumers do not depend on our producer."""

from collections.abc import Iterable

from firearrow._native.wire.codes import RequestCode
from tests.interop.peers import Peer, address
from tests.support.client_socket import ClientSocket
from tests.support.requests import send_ext


class RawProducer:
    """`feed(topic, bodies)` returns their queue offsets."""

    def __init__(self, peer: Peer) -> None:
        self._address = address(peer.address)

    def feed(
        self, topic: str, bodies: Iterable[bytes], *, queue_id: int = 0, tag: str = "", **properties: str
    ) -> list[int]:
        tags = {"TAGS": tag} if tag else {}
        text = "".join(f"{name}\x01{value}\x02" for name, value in (tags | properties).items())
        offsets = []
        with ClientSocket(self._address) as connection:
            for body in bodies:
                ext = send_ext(topic, queue_id, i=text)
                answer = connection.ask(RequestCode.SEND_MESSAGE_V2, ext, body)
                assert answer.code == 0, answer.remark
                offsets.append(int(answer.ext["queueOffset"]))
        return offsets

    def spread(self, topic: str, count: int, queues: int = 4) -> list[bytes]:
        """Send `count` numbered messages to the queues in turn; returns the bodies."""
        bodies = [b"%d" % number for number in range(count)]
        for queue_id in range(queues):
            self.feed(topic, bodies[queue_id::queues], queue_id=queue_id)
        return bodies
