"""OneController: a controller of one node, in memory, with the rules of Apache's ReplicasInfoManager, so that tests of
brokers under controllers need no JVM. `test_apache_controllers` runs the same scenes under Apache's.
"""

import json
import socket
import threading
from typing import Any

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand


class OneController:
    """`address` as host:port. `answers`: whether it answers; `elects`: whether it notices a dead master; `alters`:
    whether it lets the master change the set.

    `members`: number → address; `alive`: number → its connection; `heartbeats`: the newest one of each.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.answers = self.elects = self.alters = True
        self.members: dict[int, str] = {}
        self.alive: dict[int, socket.socket] = {}
        self.heartbeats: dict[int, dict[str, str]] = {}
        self.asked: list[int] = []
        self.master: int | None = None
        self.epoch = self.set_epoch = 0
        self.set: set[int] = set()
        self._codes: dict[int, str] = {}
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        for connection in self._open:
            connection.close()

    def appoint(self, number: int, address: str) -> None:
        """This one is the master, in a new epoch."""
        with self._lock:
            self.members[number] = address
            self.epoch += 1
            self.set_epoch += 1
            self.master, self.set = number, {number}

    def elect(self, candidates: set[int]) -> None:
        """One of these, if it is alive and in the set; its set has nobody else."""
        best = sorted(
            (number for number in candidates & self.set if number in self.alive),
            key=lambda number: (
                -int(self.heartbeats[number]["epoch"]),
                -int(self.heartbeats[number]["maxOffset"]),
            ),
        )
        self.epoch += 1
        self.set_epoch += 1
        self.master = best[0] if best else None
        if best:
            self.set = {best[0]}

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        rest = b""
        try:
            while chunk := connection.recv(1 << 16):
                rest += chunk
                while len(rest) >= 4 and len(rest) >= (size := 4 + int.from_bytes(rest[:4])):
                    frame, rest = rest[:size], rest[size:]
                    request = RemotingCommand.decode(frame)
                    with self._lock:
                        self.asked.append(request.code)
                        answer = self._answer(request, connection) if self.answers else None
                    if answer is not None and not request.is_oneway:
                        connection.sendall(answer.encode())
        except OSError:
            pass
        with self._lock:
            gone = [number for number, each in self.alive.items() if each is connection]
            for number in gone:
                del self.alive[number]
                if number == self.master and self.elects:
                    self.elect(self.set)

    def _answer(self, request: RemotingCommand, connection: socket.socket) -> RemotingCommand | None:
        ext = request.ext
        match request.code:
            case RequestCode.CONTROLLER_GET_METADATA_INFO:
                return request.answer(ext={"controllerLeaderAddress": self.address})
            case RequestCode.CONTROLLER_GET_NEXT_BROKER_ID:
                return request.answer(ext={"nextBrokerId": str(len(self.members) + 1)})
            case RequestCode.CONTROLLER_APPLY_BROKER_ID:
                number, code = int(ext["appliedBrokerId"]), ext["registerCheckCode"]
                if self._codes.setdefault(number, code) != code:
                    return request.answer(ResponseCode.CONTROLLER_BROKER_ID_INVALID, "taken")
                self.members.setdefault(number, code.split(";")[0])
                return request.answer()
            case RequestCode.CONTROLLER_REGISTER_BROKER:
                self.members[int(ext["brokerId"])] = ext["brokerAddress"]
                return self._state(request, known=self.master in self.alive)
            case RequestCode.CONTROLLER_ELECT_MASTER:
                return self._elect(request, int(ext["brokerId"]))
            case RequestCode.CONTROLLER_GET_REPLICA_INFO:
                return self._state(request, known=self.master is not None)
            case RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
                return self._alter(request)
            case RequestCode.BROKER_HEARTBEAT:
                self.alive.setdefault(int(ext["brokerId"]), connection)
                self.heartbeats[int(ext["brokerId"])] = dict(ext)
        return None

    def _state(self, request: RemotingCommand, *, known: bool, code: int = 0) -> RemotingCommand:
        ext = {"masterEpoch": str(self.epoch), "syncStateSetEpoch": str(self.set_epoch)}
        if known and self.master is not None:
            ext |= {"masterBrokerId": str(self.master), "masterAddress": self.members[self.master]}
        body: dict[str, Any] = {"syncStateSet": sorted(self.set), "syncStateSetEpoch": self.set_epoch}
        return request.answer(code, ext=ext, body=json.dumps(body).encode())

    def _elect(self, request: RemotingCommand, number: int) -> RemotingCommand:
        if self.master is not None:
            return self._state(request, known=True, code=ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
        if self.epoch == 0:
            self.set = {number}
        if number in self.set:
            self.elect({number})
        if self.master is None:
            return request.answer(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, "nobody of the set is alive")
        return self._state(request, known=True)

    def _alter(self, request: RemotingCommand) -> RemotingCommand:
        body = json.loads(request.body)
        wanted = set(body["syncStateSet"])
        if not self.alters:
            return request.answer(ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, "not now")
        if int(request.ext["masterBrokerId"]) != self.master:
            return request.answer(ResponseCode.CONTROLLER_INVALID_MASTER, "another master")
        if int(request.ext["masterEpoch"]) != self.epoch:
            return request.answer(ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, "another epoch")
        if body["syncStateSetEpoch"] != self.set_epoch:
            return request.answer(ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, "another set")
        if not wanted <= self.alive.keys():
            return request.answer(ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, "not alive")
        self.set, self.set_epoch = wanted, self.set_epoch + 1
        return self._state(request, known=True)
