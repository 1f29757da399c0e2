"""NamingOptions: the name server's options under Apache's keys; those of Apache's machinery do nothing here.

What may change while it runs lasts until it stops. Loop thread.
"""

from collections.abc import Mapping

from firearrow._native.wire.codes import ResponseCode
from firearrow.broker.errors import Refusal

_DEFAULTS = """
bindAddress=127.0.0.1
clientRequestThreadPoolNums=8
clientRequestThreadPoolQueueCapacity=50000
clusterTest=false
configBlackList=configBlackList;configStorePath;kvConfigPath
configStorePath=
defaultThreadPoolNums=16
defaultThreadPoolQueueCapacity=10000
deleteTopicWithBrokerRegistration=false
enableAllTopicList=true
enableControllerInNamesrv=false
enableShutdownGracefully=false
enableTopicList=true
kvConfigPath=
listenPort=9876
needWaitForService=false
notifyMinBrokerIdChanged=false
orderMessageEnable=false
productEnvName=center
returnOrderTopicConfigToBroker=true
rocketmqHome=
scanNotActiveBrokerInterval=5000
serverAsyncSemaphoreValue=64
serverCallbackExecutorThreads=0
serverChannelMaxIdleTimeSeconds=120
serverNettyWorkerGroupEnable=true
serverOnewaySemaphoreValue=256
serverPooledByteBufAllocatorEnable=true
serverSelectorThreads=3
serverSocketBacklog=1024
serverSocketRcvBufSize=0
serverSocketSndBufSize=0
serverWorkerThreads=8
shutdownWaitTimeSeconds=30
supportActingMaster=false
unRegisterBrokerQueueCapacity=3000
useEpollNativeSelector=false
waitSecondsForService=45
writeBufferHighWaterMark=0
writeBufferLowWaterMark=0
"""
_FLAGS = frozenset(
    {
        "deleteTopicWithBrokerRegistration",
        "enableAllTopicList",
        "enableTopicList",
        "needWaitForService",
        "orderMessageEnable",
        "returnOrderTopicConfigToBroker",
    }
)
_NUMBERS = {"scanNotActiveBrokerInterval": (100, 3_600_000), "waitSecondsForService": (0, 3600)}
"""Key → least and greatest value."""


class NamingOptions:
    """`given`: values by key that differ from the defaults; Refusal for a key or value that cannot be."""

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self._values = dict(pair.split("=", 1) for pair in _DEFAULTS.split())
        for key, text in (given or {}).items():
            self._values[self._known(key)] = self._checked(key, text)

    def flag(self, key: str) -> bool:
        return self._values[key] == "true"

    def number(self, key: str) -> int:
        return int(self._values[key])

    def text(self) -> str:
        """All of them as `key=value` lines in order of the keys."""
        return "".join(f"{key}={value}\n" for key, value in sorted(self._values.items()))

    def update(self, pairs: Mapping[str, str]) -> None:
        """Change options while it runs, all or none. Refusal names the key that may not change."""
        if set(self._values["configBlackList"].split(";")) & pairs.keys():
            raise Refusal(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        for key, text in pairs.items():
            current = self._values[self._known(key)]
            if key not in _FLAGS and key not in _NUMBERS and text != current:
                raise _wrong(f"{key} cannot change while the name server runs")
        checked = {key: self._checked(key, text) for key, text in pairs.items()}
        self._values.update(checked)

    def _known(self, key: str) -> str:
        if key not in self._values:
            raise _wrong(f"{key[:64]} is not an option of the name server")
        return key

    def _checked(self, key: str, text: str) -> str:
        if key in _FLAGS and text not in ("true", "false"):
            raise _wrong(f"{key} must be true or false, not {text[:64]!r}")
        if key in _NUMBERS:
            low, high = _NUMBERS[key]
            if not (text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= high):
                raise _wrong(f"{key} must be {low} to {high}, not {text[:64]!r}")
        return text


def _wrong(remark: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)
