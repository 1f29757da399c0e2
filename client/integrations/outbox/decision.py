"""The rule of the outbox: how a broker's check is answered from the table.

A message of a SQL transaction takes these steps:

1. insert a row with the message's id, COMMITTED, into the table, in the SQL transaction
2. send the half message, which consumers do not see
3. commit the SQL transaction
4. commit RocketMQ's transaction: consumers see the message

Without step 4 the broker asks a producer of the group, and the row decides. The row is there before the half message,
so a check finds one of three states. It is committed: COMMIT. The SQL transaction is open: its row holds the lock of
the key, the insert of a tombstone waits for it, until a time limit: KEEP, the broker asks again. The SQL transaction
has ended without a commit, or its process or database died: the tombstone is stored first, which makes a commit with
this id impossible from then on, then the answer is ROLLBACK.
"""

import logging
import os
import time
from dataclasses import replace
from typing import Protocol

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.unique_ids import UniqueIds
from firearrow.client.base.errors import ConfigError
from firearrow.client.base.message import Message, Property
from firearrow.client.send.transactions import TransactionState, first_born_ms

log = logging.getLogger("firearrow.client")

COMMITTED, ROLLED_BACK = "C", "R"
TABLE = "firearrow_outbox"
GROUP_CHARS, ID_CHARS = 255, 64
KEEP_S = 7 * 86400.0
"""More than a broker keeps half messages: `fileReservedTime` is 72 hours."""
CLEAN_AFTER_S = 3600.0
"""How much longer rows stay: a half message is younger than its row, and clocks of hosts differ."""
LOCK_WAIT_MS = 1000
"""How long a check waits for an open SQL transaction before it answers KEEP."""
ANSWERS = {COMMITTED: TransactionState.COMMIT, ROLLED_BACK: TransactionState.ROLLBACK}


class Rows(Protocol):
    """The table in the transaction of one check."""

    def find(self, group: str, transaction_id: str) -> str | None:
        """The state of a committed row."""

    def store_tombstone(self, group: str, transaction_id: str) -> bool:
        """Store and commit ROLLED_BACK; false: a row is there by now. Raises if a transaction holds the key."""


def decide(rows: Rows, message: ReceivedMessage, keep_s: float) -> TransactionState:
    """The answer to a check. Raises what the database raises: then nothing is decided."""
    group, transaction_id = message.get_property(Property.PRODUCER_GROUP), message.transaction_id
    if not group or not transaction_id:
        raise ConfigError(f"message {message.message_id} has no producer group or no transaction id")
    if len(group) > GROUP_CHARS or len(transaction_id) > ID_CHARS:
        raise ConfigError(
            f"no message of an outbox has the id {transaction_id[:ID_CHARS]}… ({len(transaction_id)})"
        )
    state = rows.find(group, transaction_id)
    if state is None:
        if _is_too_old(message, keep_s):
            log.error(
                "transaction %s of group %s is older than the rows of the outbox: decide it with `firearrow tx`",
                transaction_id,
                group,
            )
            return TransactionState.UNKNOWN
        if rows.store_tombstone(group, transaction_id):
            return TransactionState.ROLLBACK
        state = rows.find(group, transaction_id)
    return ANSWERS.get(state or "", TransactionState.UNKNOWN)


def deleted_before(keep_s: float) -> int:
    """Rows of before this time, in seconds, are of half messages that `decide` takes for too old."""
    return int(time.time() - keep_s - CLEAN_AFTER_S)


def undecided(message: ReceivedMessage, error: Exception, keep_s: float) -> TransactionState:
    """The answer when the database does not answer, or has the transaction open, for as long as rows are kept."""
    log.info(
        "transaction %s is not decided yet, the broker will ask again: %s", message.transaction_id, error
    )
    return TransactionState.UNKNOWN if _is_too_old(message, keep_s) else TransactionState.KEEP


def _is_too_old(message: ReceivedMessage, keep_s: float) -> bool:
    return first_born_ms(message) / 1000 < time.time() - keep_s


def with_new_id(message: Message) -> Message:
    """A copy with an id of its own, also if the message was sent before.

    In RocketMQ's form, with the time, but with random bytes for address and process: a stranger who can send half
    messages cannot guess the id of the next transaction, and so has no tombstone stored that would abort it.
    """
    random = os.urandom(10)
    return replace(message, unique_id=UniqueIds(random[:4], int.from_bytes(random[4:6]), random[6:]).next())
