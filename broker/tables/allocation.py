"""Allocation: which queues of a topic a client of a group consumes, as Apache's strategies share them. Pure.

Queues and clients come sorted; a client that is not among `clients` gets none.
"""

from collections.abc import Callable, Sequence

from firearrow.broker.fastjson import MessageQueue

Strategy = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]


def averagely(client: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
    """Neighbouring queues; the first clients get one more where it does not come out even."""
    if client not in clients:
        return []
    index = clients.index(client)
    share, rest = divmod(len(queues), len(clients))
    if len(queues) <= len(clients):
        return list(queues[index : index + 1])
    start = index * share + min(index, rest)
    return list(queues[start : start + share + (index < rest)])


def by_circle(client: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
    """Every n-th queue of n clients."""
    return list(queues[clients.index(client) :: len(clients)]) if client in clients else []


STRATEGIES: dict[str, Strategy] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}


def for_pop(
    strategy: Strategy,
    client: str,
    queues: Sequence[MessageQueue],
    clients: Sequence[str],
    share_queues: int,
) -> list[MessageQueue]:
    """The client's own queues and those of the next `share_queues` clients; queue -1 stands for all of a broker."""
    if share_queues <= 0 or share_queues >= len(clients) - 1:
        brokers = dict.fromkeys(MessageQueue(queue.broker_name, -1, queue.topic) for queue in queues)
        return list(brokers)
    if client not in clients:
        return []
    index = clients.index(client)
    if len(clients) > len(queues):
        return [queues[index % len(queues)]]
    sharing = (clients[(index + n) % len(clients)] for n in range(share_queues + 1))
    return list(dict.fromkeys(queue for other in sharing for queue in strategy(other, queues, clients)))
