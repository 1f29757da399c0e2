"""Bodies as the drivers take them, and whole queues read back."""

from tests.interop.driver import Driver, Event


def hexed(*texts: str) -> list[str]:
    return [text.encode().hex() for text in texts]


def numbered(what: str, count: int) -> list[str]:
    return hexed(*(f"{what} {number}" for number in range(count)))


def pull_all(client: Driver, topic: str, queue: int) -> list[Event]:
    """Pull one queue to its end."""
    messages: list[Event] = []
    for _ in range(100):
        *found, pulled = client.ask("pull", topic=topic, queue=queue, offset=len(messages))
        messages += found
        if pulled["max"] <= len(messages):
            return messages
    raise AssertionError("100 pulls did not reach the end")


def read(client: Driver, topic: str, count: int) -> list[Event]:
    """All `count` messages of the topic. The Go pull waits 20 s at an empty queue, so Go consumes."""
    if client.name == "go":
        reader = f"{topic}-reader"
        client.ask("consume", name=reader, group=reader, topic=topic)
        client.await_count(reader, count)
        client.ask("stop", name=reader)
        return sorted(client.consumed(reader), key=lambda event: (event["queueId"], event["queueOffset"]))
    queues = client.ask("queues", topic=topic)
    return [message for queue in queues for message in pull_all(client, topic, queue["queueId"])]
