"""Transactions: half messages, their decisions and checks.

- `check_sender`: CHECK_TRANSACTION_STATE (39), one-way, to any living producer of the half message's group
- `check_service`: asks for half messages that nobody ended (TransactionalMessageServiceImpl.check)
- `end_transaction`: a producer commits or rolls back
- `half_message`: Half messages: what becomes of a message that begins a transaction, ends it, or is asked
  for again
- `op_messages`: all decisions of a turn as one op message, in the same write as the final messages
- `open_halves`: which half messages are still open, by their offset in the half queue
- `service`: the parts of transactions put together, their start from the store, their offsets
"""
