"""`dramatiq tests.integrations.programs.dramatiq_program`, and `python -m …` to send numbers."""

import sys

import dramatiq

from firearrow.client.integrations.dramatiq import RocketMQBroker
from tests.integrations.programs import record

broker = RocketMQBroker(group_name=record.queue(), options=record.OPTIONS, client=record.client())
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name=record.queue(), actor_name="work")
def work(number: int, seconds: float) -> None:
    record.work(number, seconds)


def main(count: int, seconds: float) -> None:
    for number in range(count):
        work.send(number, seconds)
    broker.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
