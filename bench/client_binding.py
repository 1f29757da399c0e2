"""The C++ client's Python binding (package `rocketmq`) under load; otherwise as client_firearrow.

Run by a Python that has the package. The binding needs a thread for each callback, so `send` limits the sends
in flight.
"""

import json
import sys
import threading
import time

from rocketmq.client import Message, Producer, PushConsumer

SMALL, LARGE = b"x" * 128, b"x" * 1024
BATCH, DEPTH = 200, 2048
GROUP = f"bench-binding-{time.time_ns()}"


def message(topic: str, body: bytes) -> Message:
    made = Message(topic)
    made.set_body(body)
    return made


def started(name_server: str) -> Producer:
    producer = Producer(GROUP, timeout=10000)
    producer.set_namesrv_addr(name_server)
    producer.start()
    return producer


def send(name_server: str, topic: str, messages: int) -> None:
    producer = started(name_server)
    producer.send_sync(message(topic, SMALL))
    in_flight = threading.Semaphore(DEPTH)
    failed: list[Exception] = []

    def answered(result: object) -> None:
        in_flight.release()

    def refused(error: Exception) -> None:
        failed.append(error)
        in_flight.release()

    clock.start()
    for _ in range(messages):
        in_flight.acquire()
        producer.send_async(message(topic, SMALL), answered, refused)
    for _ in range(DEPTH):
        in_flight.acquire()
    clock.stop()
    if failed:
        raise failed[0]
    producer.shutdown()


def batch(name_server: str, topic: str, messages: int) -> None:
    producer = started(name_server)
    producer.send_sync(message(topic, SMALL))
    clock.start()
    for _ in range(messages // BATCH):
        producer.send_batch([message(topic, SMALL) for _ in range(BATCH)])
    clock.stop()
    producer.shutdown()


def ping(name_server: str, topic: str, messages: int) -> None:
    producer = started(name_server)
    producer.send_sync(message(topic, SMALL))
    clock.start()
    for _ in range(messages):
        producer.send_sync(message(topic, SMALL))
    clock.stop()
    producer.shutdown()


def push(name_server: str, topic: str, messages: int) -> None:
    finished, left = threading.Event(), [messages]

    def handle(received: object) -> None:
        if left[0] == messages:
            clock.start()
        left[0] -= 1
        if left[0] == 0:
            clock.stop()
            finished.set()

    consumer = PushConsumer(GROUP)
    consumer.set_namesrv_addr(name_server)
    consumer.set_thread_count(1)
    consumer.subscribe(topic, handle)
    consumer.start()
    if not finished.wait(60):
        raise SystemExit(f"{left[0]} messages did not come")


class Clock:
    def start(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        self.wall, self.cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu


clock = Clock()

if __name__ == "__main__":
    workload, address, where, count = sys.argv[1:]
    {"send": send, "batch": batch, "ping": ping, "push": push}[workload](address, where, int(count))
    print(json.dumps({"rate": int(count) / clock.wall, "cpu_us": clock.cpu / int(count) * 1e6}), flush=True)
