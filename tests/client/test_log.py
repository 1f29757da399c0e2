"""GET_LOG and `firearrow log`: the last lines of a broker's log, by number and level."""

from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow.client import blocking
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import here


def test_the_log_is_read_over_the_wire(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
        assert broker.name_server is not None
        where = "{}:{}".format(*broker.name_server)
        texts = [str(row["text"]) for row in here("log", name_server=where).lines]
        assert any(text.startswith("listening on loopback only") for text in texts)
        assert all(text in broker.log.read_text() for text in texts)
        with blocking.Admin(name_server=where) as admin:
            extensions = blocking.Extensions(admin)
            [name] = admin.cluster_info().brokers
            last = list(extensions.log(name))[-1].number
            assert [line.number for line in extensions.log(name, limit=2)] == [last - 1, last]
            assert extensions.log(name, limit=1).more
            assert list(extensions.log(name, after=last)) == []
            assert len(extensions.log(name, after=last + 1_000_000)) > 1  # the broker was started again
            assert list(extensions.log(name, level="ERROR")) == []
            assert [line.number for line in extensions.log(name, after=last - 1)] == [last]
        for wrong in ({"level": "loud"}, {"limit": "0"}, {"limit": "1001"}):
            refused = connection.ask(RequestCode.GET_LOG, wrong)
            assert refused.code == ResponseCode.INVALID_PARAMETER, wrong


@pytest.mark.parametrize("words", [("--lines", "1001"), ("--lines", "0"), ("--level", "loud")])
def test_wrong_use(words: tuple[str, ...]) -> None:
    assert here("log", *words, name_server="127.0.0.1:1").code == 2
