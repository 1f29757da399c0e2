"""END_TRANSACTION (37), RESUME_CHECK_HALF_MESSAGE (323). Loop thread."""

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.life.appender import TRANSACTION_BITS, TRANSACTION_COMMIT
from firearrow.broker.life.transactions.ending import Decision
from firearrow.broker.life.transactions.service import TransactionService
from firearrow.broker.peer import Peer, Routes

TRANSACTION_ROLLBACK = TRANSACTION_BITS


class TransactionsHandler:
    def __init__(self, transactions: TransactionService) -> None:
        self._transactions = transactions

    def routes(self) -> Routes:
        return {
            RequestCode.END_TRANSACTION: self.end_transaction,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume_check,
        }

    def end_transaction(self, request: RemotingCommand, peer: Peer) -> RemotingCommand | None:
        """`unknown` is never answered: the producer is asked later."""
        what = request.integer("commitOrRollback", 32)
        request.text("msgId")
        decision = Decision(
            request.text("producerGroup"),
            request.integer("tranStateTableOffset"),
            request.integer("commitLogOffset"),
            what == TRANSACTION_COMMIT,
            request.boolean_or("fromTransactionCheck", False),
        )
        if what not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            return None
        answer = None if request.is_oneway else request.answer()
        return None if self._transactions.end(decision, peer, answer) else answer

    def resume_check(self, request: RemotingCommand, peer: Peer) -> None:
        self._transactions.resume(request.text("msgId"), peer, request.answer())
