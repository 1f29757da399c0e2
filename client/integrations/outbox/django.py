"""The outbox for Django: `send` in `transaction.atomic()`, `check` for producers. `decision` has the rule.

The table is that of the application `firearrow.client.integrations.django`. Django reports commits, but no rollbacks:
half messages of transactions that were rolled back are decided by the broker's check.
"""

import time
from contextlib import ExitStack
from typing import Any, NamedTuple

try:
    from django.apps import apps
    from django.db import (
        DEFAULT_DB_ALIAS,
        IntegrityError,
        InterfaceError,
        OperationalError,
        close_old_connections,
        connections,
        transaction,
    )
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("django is missing: pip install 'firearrow[django]'", name="django") from error

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.message import Message
from firearrow.client.blocking import Producer
from firearrow.client.integrations.django.settings import producer as producer_of_process
from firearrow.client.integrations.outbox.decision import (
    COMMITTED,
    KEEP_S,
    LOCK_WAIT_MS,
    ROLLED_BACK,
    decide,
    deleted_before,
    undecided,
    with_new_id,
)
from firearrow.client.send.transactions import TransactionState

__all__ = ["check", "clean", "send"]


def __dir__() -> list[str]:
    return sorted(__all__)


DATABASE = "OUTBOX_DATABASE"
"""The property of messages whose row is not in the default database: its alias."""


class _Rows(NamedTuple):
    """See `decision.Rows`."""

    using: str

    def find(self, group: str, transaction_id: str) -> str | None:
        rows = _table(self.using).filter(producer_group=group, transaction_id=transaction_id)
        found: str | None = rows.values_list("state", flat=True).first()
        return found

    def store_tombstone(self, group: str, transaction_id: str) -> bool:
        try:
            with transaction.atomic(self.using, durable=True):
                connection = connections[self.using]
                if connection.vendor == "postgresql":
                    with connection.cursor() as cursor:
                        cursor.execute(f"set local lock_timeout = {LOCK_WAIT_MS}")
                _store(self.using, group, transaction_id, ROLLED_BACK)
        except IntegrityError:
            return False
        return True


def _table(using: str) -> Any:
    """Looked up when it is used: Django's applications are loaded by then."""
    return apps.get_model("firearrow", "OutboxRow").objects.using(using)


def _store(using: str, group: str, transaction_id: str, state: str) -> None:
    _table(using).create(
        producer_group=group, transaction_id=transaction_id, state=state, created_s=int(time.time())
    )


def send(
    message: Message,
    producer: Producer | None = None,
    *,
    using: str = DEFAULT_DB_ALIAS,
    timeout_s: float | None = None,
) -> None:
    """Deliver the message if the current transaction commits; in a savepoint, if that is kept as well.

    `producer`: by default that of the settings; its checker must be `check`. TransactionManagementError: no
    transaction is open. ConfigError, the errors of a send, of the database: the message is not delivered.
    """
    sender = producer_of_process() if producer is None else producer
    own = with_new_id(message)
    if using != DEFAULT_DB_ALIAS:
        own.properties = message.properties | {DATABASE: using}
    assert own.unique_id is not None
    connections[using].validate_no_broken_transaction()
    if not connections[using].in_atomic_block:
        raise transaction.TransactionManagementError(
            "no transaction is open: send in a block of transaction.atomic()"
        )
    with ExitStack() as half:
        with transaction.atomic(using):  # a failed send leaves no row, also if the caller goes on
            _store(using, sender.group, own.unique_id, COMMITTED)
            sent = half.enter_context(sender.transaction(own, timeout_s=timeout_s))
            sent.leave_unknown()
        kept = half.pop_all()

    def committed() -> None:
        """PostgreSQL's COMMIT rolls back without an error if the block has caught the one of a statement."""
        with kept:
            if _Rows(using).find(sender.group, sent.id) == COMMITTED:
                sent.commit()

    transaction.on_commit(committed, using=using, robust=True)
    message.unique_id = own.unique_id


def check(message: ReceivedMessage) -> TransactionState:
    """The `checker` of producers. It asks the database that `send` used."""
    close_old_connections()
    try:
        return decide(_Rows(message.get_property(DATABASE) or DEFAULT_DB_ALIAS), message, KEEP_S)
    except (OperationalError, InterfaceError) as error:
        return undecided(message, error, KEEP_S)
    finally:
        close_old_connections()


def clean(group: str, *, using: str = DEFAULT_DB_ALIAS) -> int:
    """Delete the rows of a producer group that no check needs any more; their number."""
    old = _table(using).filter(producer_group=group, created_s__lt=deleted_before(KEEP_S))
    return int(old.delete()[0])
