"""Sends from many threads, then receives all of it, by Apache's C++ client 1.2, which `rocketmq` 0.4.4 carries.

`load.py NAME_SERVER TOPIC GROUP THREADS EACH`; it runs with the Python of that package's environment, not with ours.
"""

import json
import random
import sys
import threading
import time

from rocketmq.client import Message, Producer, PushConsumer
from rocketmq.exceptions import ProducerSendSyncFailed

LARGE = "compresses well " * 600
WAIT_S = 60


def message(topic: str, dice: random.Random, n: int) -> Message:
    """Some of: a tag, a key, up to three properties, a body that is compressed."""
    made = Message(topic)
    made.set_body(LARGE if n % 10 == 0 else f"body {n}")
    if dice.random() < 0.8:
        made.set_tags(f"tag{n % 3}")
    if dice.random() < 0.5:
        made.set_keys(f"key{n}")
    for number in dice.sample(range(4), dice.randrange(4)):
        made.set_property(f"p{number}", f"value {dice.random()}")
    return made


def send_once(producer: Producer, made: Message) -> None:
    """Of many threads that look for a route at once, this client refuses some, before it sends: they try again."""
    until = time.monotonic() + WAIT_S
    while True:
        try:
            producer.send_sync(made)
            return
        except ProducerSendSyncFailed as error:
            if "No route info" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)


def main(name_server: str, topic: str, group: str, threads: int, each: int) -> None:
    producer = Producer(group)
    producer.set_namesrv_addr(name_server)
    producer.start()
    sent: list[int] = []

    def send(thread: int) -> None:
        dice = random.Random(thread)
        for n in range(each):
            send_once(producer, message(topic, dice, n))
            sent.append(n)

    senders = [threading.Thread(target=send, args=(thread,)) for thread in range(threads)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    received: set[tuple[int, int]] = set()  # not by their ids: this client makes the same for two threads
    consumer = PushConsumer(f"{group}-listener")
    consumer.set_namesrv_addr(name_server)
    consumer.subscribe(topic, lambda found: received.add((found.queue_id, found.queue_offset)))
    consumer.start()
    until = time.monotonic() + WAIT_S
    while len(received) < threads * each and time.monotonic() < until:
        time.sleep(0.1)
    consumer.shutdown()
    producer.shutdown()
    print(json.dumps({"sent": len(sent), "received": len(received)}))


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:6]))
