"""Which failures are worth another try, by whether the caller waits (`send`) or not (`submit`)."""

from collections.abc import Callable

from firearrow.client.base.errors import BrokerError, ClientError, TooManyRequests, TransportError


def retry_on_other_broker(codes: frozenset[int]) -> Callable[[BaseException], bool]:
    """The rule of `send`: anything but refusals of brokers that would be the same elsewhere."""

    def retries(error: BaseException) -> bool:
        return error.code in codes if isinstance(error, BrokerError) else isinstance(error, ClientError)

    return retries


def is_transport_error(error: BaseException) -> bool:
    """The rule of `submit`: only what no broker answered."""
    return isinstance(error, TransportError) and not isinstance(error, TooManyRequests)


def never_retry(error: BaseException) -> bool:
    """The rule of one-way messages."""
    return False
