"""TransactionsAcross: transactions that one broker begins and another one ends. Decided ones are not checked again."""

import time
from collections import Counter
from dataclasses import dataclass, field

from firearrow._native.wire.codes import RequestCode
from tests.integration import test_transactions as transactions
from tests.interop.pending_work import WAIT_S, PendingWork, bodies, ok
from tests.support.client_socket import ClientSocket


@dataclass
class TransactionsAcross(PendingWork):
    """Transactions: one of each end, and two that stay open. `halves`: open ones, and the answers to checks.
    `decided` is common to all works of one round trip: no broker may check these again."""

    decided: set[bytes] = field(default_factory=set)
    groups: set[str] = field(default_factory=lambda: {"PG"})

    def __post_init__(self) -> None:
        ends = {"committed": transactions.COMMIT, "undone": transactions.ROLLBACK}
        self._ended = {self.body(what): end for what, end in ends.items()}
        self.halves = {self.body(f"to be {what}"): end for what, end in ends.items()}

    def leave(self, client: ClientSocket) -> None:
        """The open ones first, so that the op messages of the others matter for the next broker."""
        for body in self.halves:
            prepare(client, body)
        for body, end in self._ended.items():
            ok(transactions.end(client, prepare(client, body), end))
        self.decided |= self._ended.keys()

    def finish(self, client: ClientSocket) -> None:
        for group in self.groups:
            transactions.join(client, group)
        left, deadline = dict(self.halves), time.monotonic() + WAIT_S
        while left:
            assert time.monotonic() < deadline, f"no check of {left}"
            half, record = transactions.await_check(client)
            assert record.body not in self.decided
            if (decision := left.pop(record.body, None)) is not None:
                ext = transactions.end_ext(half, decision, checked=True)
                ok(
                    client.ask(
                        RequestCode.END_TRANSACTION, ext | {"producerGroup": record.properties["PGROUP"]}
                    )
                )

    def verify(self, client: ClientSocket) -> None:
        found = Counter(bodies(client, "GoldenTx"))
        for body, decision in (self.halves | self._ended).items():
            assert found[body] == (decision == transactions.COMMIT), body


def prepare(client: ClientSocket, body: bytes) -> transactions.Half:
    ext = transactions.half_ext("GoldenTx", f"KEY{body.hex()}")
    return transactions.half_of(ok(client.ask(RequestCode.SEND_MESSAGE_V2, ext, body)))


def assert_not_checked(client: ClientSocket, decided: set[bytes]) -> None:
    """Wait until the broker checks another half message: it has read all before it."""
    last = f"last of {len(decided)}".encode()
    prepare(client, last)
    deadline = time.monotonic() + WAIT_S
    while (checked := transactions.await_check(client))[1].body != last:
        assert checked[1].body not in decided, checked[1].body
        assert time.monotonic() < deadline, "no check of the last one"
    ok(transactions.end(client, checked[0], transactions.ROLLBACK, checked=True))
