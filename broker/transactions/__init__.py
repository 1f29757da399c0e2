"""Transactions: half messages, their decisions and checks.

- `check_sender`: sends CHECK_TRANSACTION_STATE (39), one-way, to a connected producer of the half message's
  group
- `check_service`: checks half messages that no producer ended (TransactionalMessageServiceImpl.check)
- `end_transaction`: commits and rollbacks of producers
- `half_message`: converts messages: to a half message, its copy for a check, the final and the discarded
  message
- `half_topics`: to which topics the open half messages belong
- `op_messages`: writes all decisions of a write batch as one op message, together with the final messages
- `open_halves`: which half messages are open, by their offset in the half queue
- `service`: the transactions of a broker: composes the parts, restores their state from the store, commits
  offsets
"""
