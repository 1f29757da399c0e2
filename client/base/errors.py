"""The errors of the client: one hierarchy, with the codes of Java's client and the remarks of brokers."""

from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand


class RocketMQError(Exception):
    """The base of all errors of the client."""


class ConfigError(RocketMQError, ValueError):
    """An option, a name or a subscription is invalid; the text names it and what is allowed."""


class NotRunning(RocketMQError):
    """The object was not started, failed to start, or is closed."""


class ClientError(RocketMQError):
    """A request failed. `code` is that of Java's MQClientException, or the broker's response code."""

    code = 10003

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        if code is not None:
            self.code = code


class MessageRefused(ClientError, ValueError):
    """The message cannot be sent as it is; nothing was sent."""

    code = int(ResponseCode.MESSAGE_ILLEGAL)


class NoNameServer(ClientError):
    """No name server is configured."""

    code = 10004


class NoRoute(ClientError):
    """No name server has a route for the topic."""

    code = 10005


class InvalidReceiptHandle(ClientError, ValueError):
    """A receipt handle, or an offset string of a POP answer, cannot be read; the text names the field."""


class RequestReplyTimeout(ClientError):
    """The request was stored, but no reply arrived in time."""

    code = 10006


class NoReplyAddress(ClientError):
    """The message is not a request, so no reply can be sent."""

    code = 10007


class TooManyRequests(ClientError):
    """The limit of requests in flight is reached, or no time is left to send another request."""


class TransportError(ClientError):
    """The connection failed; the broker may or may not have received the request."""


class ConnectFailed(TransportError):
    """No connection could be opened; the broker has not received the request."""

    code = 10001


class ConnectionLost(TransportError):
    """The connection closed before the answer arrived."""

    code = 10001


class RequestTimeout(TransportError):
    """No answer arrived in time. The connection stays open, unless nothing else came on it either."""

    code = 10002


class BrokerError(ClientError):
    """A broker or name server answered with an error: `code` and `remark` are those of the response."""

    def __init__(self, code: int, remark: str, broker: str) -> None:
        super().__init__(f"{broker}: {code} {code_name(code)}: {remark}", code)
        self.remark = remark
        self.broker = broker


class OnlyFireArrow(ClientError):
    """The request is one that only FireArrow's broker answers."""

    code = int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

    def __init__(self, broker: str) -> None:
        super().__init__(f"{broker}: Apache's broker does not answer this; only FireArrow's does")
        self.broker = broker


class OffsetUnknown(RocketMQError):
    """The stored offset could not be read; one may exist."""


def code_name(code: int) -> str:
    return ResponseCode(code).name if code in ResponseCode._value2member_map_ else "?"


def check(answer: RemotingCommand, broker: str) -> RemotingCommand:
    """Return the answer if it is a success. BrokerError."""
    if answer.code != 0:
        raise BrokerError(answer.code, answer.remark or "", broker)
    return answer
