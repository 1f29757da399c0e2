"""What can go wrong for a user of the client: one family with the numbers of Java's client and the broker's words."""

from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand


class RocketMQError(Exception):
    """Every error of the client is one of these."""


class ConfigError(RocketMQError, ValueError):
    """An option, a name or a subscription is not allowed; the text says which and what is."""


class NotRunning(RocketMQError):
    """The object was not started yet, failed to start, or was closed."""


class ClientError(RocketMQError):
    """A request did not succeed. `code` is that of Java's MQClientException, or the broker's response code."""

    code = 10003

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        if code is not None:
            self.code = code


class MessageRefused(ClientError, ValueError):
    """The message may not be sent as it is: refused before anything left."""

    code = int(ResponseCode.MESSAGE_ILLEGAL)


class NoNameServer(ClientError):
    code = 10004


class NoRoute(ClientError):
    """No name server knows a broker for the topic."""

    code = 10005


class RequestReplyTimeout(ClientError):
    """The request was stored, but nobody replied in time."""

    code = 10006


class NoReplyAddress(ClientError):
    """A message that is no request cannot be replied to."""

    code = 10007


class TooManyRequests(ClientError):
    """As many requests are on the way as may be, or no time was left for one more."""


class TransportError(ClientError):
    """The request may or may not have reached the broker."""


class ConnectFailed(TransportError):
    code = 10001


class ConnectionLost(TransportError):
    code = 10001


class RequestTimeout(TransportError):
    code = 10002


class BrokerError(ClientError):
    """A broker or name server answered with an error: its response code and its words."""

    def __init__(self, code: int, remark: str, broker: str) -> None:
        super().__init__(f"{broker}: {code} {code_name(code)}: {remark}", code)
        self.remark = remark
        self.broker = broker


class OffsetUnknown(RocketMQError):
    """The stored offset could not be determined; that is not the same as none being stored."""


def code_name(code: int) -> str:
    return ResponseCode(code).name if code in ResponseCode._value2member_map_ else "?"


def check(answer: RemotingCommand, broker: str) -> RemotingCommand:
    """The answer itself if it is a success. BrokerError."""
    if answer.code != 0:
        raise BrokerError(answer.code, answer.remark or "", broker)
    return answer
