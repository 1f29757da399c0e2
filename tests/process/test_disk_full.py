"""The disk refuses (a file size limit set on the running process stands for it): sends fail, all else goes on."""

import resource
from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from tests.process.requests import read_queue, send
from tests.process.running import Broker

SERVICE_NOT_AVAILABLE = 14
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def test_sends_fail_while_the_disk_is_full_and_work_again(tmp_path: Path) -> None:
    with Broker(tmp_path / "store") as broker, broker.connect() as connection:
        before = [b"%d" % n for n in range(20)]
        for body in before:
            assert send(connection, "Full", body).code == 0
        resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        for _ in range(5):
            answer = send(connection, "Full", b"no room" * 1000)
            assert answer.code == SERVICE_NOT_AVAILABLE
            assert answer.remark
            assert [record.body for record in read_queue(connection, "Full", 0)] == before
            commit = {"consumerGroup": "CG", "topic": "Full", "queueId": "0", "commitOffset": "7"}
            assert connection.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == 0
        resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, UNLIMITED)
        assert send(connection, "Full", b"room again").code == 0
        assert [record.body for record in read_queue(connection, "Full", 0)] == [*before, b"room again"]
        assert broker.stop() == 0
    with Broker(tmp_path / "store") as again, again.connect() as connection:
        assert [record.body for record in read_queue(connection, "Full", 0)] == [*before, b"room again"]
