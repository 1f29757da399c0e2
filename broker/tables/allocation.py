"""Allocation: which queues of a topic a client of a group consumes when the broker assigns them. Pure.

Queues and clients have to be sorted; a client that is not among `clients` gets no queue.
"""

from collections.abc import Callable, Sequence

from firearrow._native.protocol.message_queue import MessageQueue, averagely, by_circle

Strategy = Callable[[str, Sequence[MessageQueue], Sequence[str]], Sequence[MessageQueue]]

STRATEGIES: dict[str, Strategy] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}


def for_pop(
    strategy: Strategy,
    client: str,
    queues: Sequence[MessageQueue],
    clients: Sequence[str],
    share_queues: int,
) -> list[MessageQueue]:
    """The queues of the client and of the next `share_queues` clients; queue -1: all queues of a broker."""
    if share_queues <= 0 or share_queues >= len(clients) - 1:
        brokers = dict.fromkeys(MessageQueue(queue.topic, queue.broker_name, -1) for queue in queues)
        return list(brokers)
    if client not in clients:
        return []
    index = clients.index(client)
    if len(clients) > len(queues):
        return [queues[index % len(queues)]]
    sharing = (clients[(index + n) % len(clients)] for n in range(share_queues + 1))
    return list(dict.fromkeys(queue for other in sharing for queue in strategy(other, queues, clients)))
