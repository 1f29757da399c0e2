"""ProduceTracing: the trace of a running producer, if it is enabled. Loop thread."""

from firearrow.client.base.hooks import EndTransactionHook, SendHook
from firearrow.client.base.names import Namespace
from firearrow.client.trace.dispatcher import TraceDispatcher
from firearrow.client.trace.hooks import ProduceTrace


class ProduceTracing:
    """From start to close, its `hook` follows the user's hooks in both lists."""

    def __init__(
        self,
        dispatcher: TraceDispatcher,
        namespace: Namespace,
        send_hooks: list[SendHook],
        end_transaction_hooks: list[EndTransactionHook],
    ) -> None:
        self.hook = ProduceTrace(dispatcher, namespace)
        self._dispatcher = dispatcher
        self._send_hooks = send_hooks
        self._end_transaction_hooks = end_transaction_hooks

    async def start(self) -> None:
        self._send_hooks.append(self.hook)
        self._end_transaction_hooks.append(self.hook)
        await self._dispatcher.start()

    async def close(self) -> None:
        """Send pending traces, within a time limit, and close."""
        self._send_hooks.remove(self.hook)
        self._end_transaction_hooks.remove(self.hook)
        await self._dispatcher.close()
