"""Commits and rollbacks (END_TRANSACTION 37), resumed checks (RESUME_CHECK_HALF_MESSAGE 323). Loop thread."""

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.append.appender import TRANSACTION_BITS, TRANSACTION_COMMIT
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.transactions.end_transaction import Decision
from firearrow.broker.transactions.service import TransactionService

UNKNOWN, TRANSACTION_ROLLBACK = 0, TRANSACTION_BITS


class TransactionsHandler:
    def __init__(self, transactions: TransactionService) -> None:
        self._transactions = transactions

    def routes(self) -> Routes:
        return {
            RequestCode.END_TRANSACTION: self.end_transaction,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume_check,
        }

    def end_transaction(self, request: RemotingCommand, peer: Peer) -> RemotingCommand | None:
        """UNKNOWN changes nothing: the producer is asked again later. Clients of gRPC state the id of the half message
        as well: its offsets alone could be guessed."""
        state = request.integer("commitOrRollback", 32)
        if state not in (UNKNOWN, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            remark = f"commitOrRollback must be 0, 8 or 12, not {state}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        request.text("msgId")
        decision = Decision(
            request.text("producerGroup"),
            request.integer("tranStateTableOffset"),
            request.integer("commitLogOffset"),
            state == TRANSACTION_COMMIT,
            request.boolean_or("fromTransactionCheck", False),
            request.ext.get("halfMessageId"),
        )
        if state == UNKNOWN:
            return request.answer()
        answer = None if request.is_oneway else request.answer()
        return None if self._transactions.end(decision, peer, answer) else answer

    def resume_check(self, request: RemotingCommand, peer: Peer) -> None:
        self._transactions.resume(request.text("msgId"), peer, request.answer())
