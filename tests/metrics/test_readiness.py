"""/readyz and /healthz: when they answer 503, and why."""

from pathlib import Path

from tests.faults.small_disk import SmallDisk
from tests.faults.test_full_disk import settings
from tests.metrics.scrapes import WatchedBroker, watched
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.requests import send


def until_ready(broker: WatchedBroker, status: int, within_s: float = 15) -> str:
    """The answer of /readyz once its status is this."""

    def answered() -> bytes | None:
        code, _, body = broker.get("/readyz")
        return body if code == status else None

    found = eventually(answered, within_s, f"/readyz answers {status}")
    assert found is not None
    return found.decode()


def test_a_full_disk_is_not_ready_and_a_free_one_is(tmp_path: Path) -> None:
    with SmallDisk(tmp_path, kind="tmpfs") as disk, watched(disk.store, *settings("ASYNC_FLUSH")) as broker:
        assert until_ready(broker, 200) == "ready\n"
        disk.fill()
        assert "free disk space" in until_ready(broker, 503)
        assert broker.get("/healthz")[0] == 200
        disk.free_space()
        assert until_ready(broker, 200) == "ready\n"


def test_a_disk_over_its_limit_is_not_ready(tmp_path: Path) -> None:
    with (
        SmallDisk(tmp_path, kind="tmpfs") as disk,
        watched(disk.store, *settings("ASYNC_FLUSH"), "--set", "cleanResourceInterval=100") as broker,
        broker.connect() as connection,
    ):
        assert send(connection, "T", b"x").code == 0
        disk.fill(leave_bytes=500_000)
        assert "the disk is nearly full" in until_ready(broker, 503)
        disk.free_space()


def test_a_broker_without_its_name_server_is_not_ready(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "other") as other:
        assert other.name_server is not None
        address = "{}:{}".format(*other.name_server)
        arguments = ("--namesrv-listen", "off", "--namesrv", address)
        with watched(tmp_path / "store", *arguments) as broker:
            assert until_ready(broker, 200) == "ready\n"
            other.kill()
            assert "no name server has this broker" in until_ready(broker, 503)


def test_without_the_option_nothing_listens(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker:
        listening = Path(f"/proc/{broker.process.pid}/net/tcp").read_text()
        inodes = {
            path.readlink().name
            for path in Path(f"/proc/{broker.process.pid}/fd").iterdir()
            if path.is_symlink()
        }
        own = [
            line.split()
            for line in listening.splitlines()[1:]
            if f"socket:[{line.split()[9]}]" in inodes and line.split()[3] == "0A"
        ]
        assert len(own) == 3  # broker, VIP port and name server
