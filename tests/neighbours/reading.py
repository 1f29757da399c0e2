"""What a neighbour has written to a topic."""

from firearrow.client import ConsumeFromWhere, PullConsumerOptions, ReceivedMessage
from firearrow.client.blocking import PullConsumer
from tests.client.conftest import unique
from tests.interop.peers import Peer


def read(peer: Peer, topic: str, count: int) -> list[ReceivedMessage]:
    """The first `count` messages of a topic, those of a queue in order. AssertionError: there are fewer."""
    options = PullConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
    found: list[ReceivedMessage] = []
    with PullConsumer(unique("reader"), name_server=peer.name_server, options=options) as reader:
        reader.assign(reader.fetch_queues(topic))
        while len(found) < count:
            messages = reader.poll(timeout_s=40)
            assert messages, sorted(message.body for message in found)
            found += messages
    return found
