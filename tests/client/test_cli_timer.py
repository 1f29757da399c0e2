"""`timer list --topic`: the limit is one of the topic's messages, however many others wait before them."""

from pathlib import Path

import pytest

from firearrow.broker.handlers.waiting_messages import SCANNED
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import here
from tests.support.eventually import eventually


@pytest.mark.parametrize("levels", [False, True], ids=["timers", "delay levels"])
def test_messages_of_other_topics_do_not_count(tmp_path: Path, levels: bool) -> None:
    sooner, later = ("--delay", "1h"), ("--delay", "2h")
    if not levels:
        sooner, later = ("--at", "+61m"), ("--at", "+119m")
    with BrokerProcess(tmp_path / "store") as broker:
        assert broker.name_server is not None
        names = "{}:{}".format(*broker.name_server)
        many = here("send", "others", "x", "--count", str(SCANNED + 50), *sooner, name_server=names)
        assert many.rows[0]["sent"] == SCANNED + 50
        for number in range(3):
            assert here("send", "mine", f"{number}", *later, name_server=names).code == 0
        wanted = ["mine"] * 3
        listing = "timer", "list", "--topic", "mine"
        eventually(lambda: [row["topic"] for row in here(*listing, name_server=names).rows] == wanted, 30)
        two = here(*listing, "--limit", "2", name_server=names)
        assert (len(two.rows), "there are more" in two.err) == (2, True)
        whole = here(*listing, "--limit", "3", name_server=names)
        assert (len(whole.rows), whole.err) == (3, "")
        assert here("timer", "list", "--topic", "none", name_server=names).rows == []
        assert len(here("timer", "list", "--limit", "1000", name_server=names).rows) == 1000
