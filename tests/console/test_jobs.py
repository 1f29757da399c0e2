"""Dead letters that are chosen by boxes are sent again by a job, with its progress and a receipt for each."""

import re
from pathlib import Path

import pytest

from firearrow.client.base.errors import ConfigError
from firearrow.client.console.jobs import RUNNING_OF_USER_MAX, Jobs
from firearrow.client.console.questions import Question
from tests.console.running import ConsoleProcess, Visitor, fill
from tests.console.shown_data import DEAD, fill_more
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually


def chosen_by_boxes(visitor: Visitor) -> list[str]:
    text = visitor.page("/dead-letters/billing")
    assert '<form action="/actions/redrive">' in text
    return re.findall(r'type="checkbox" name="f\.--ids" value="([0-9A-F]+)"', text)


def test_a_user_leaves_places_to_others() -> None:
    jobs, question = Jobs(), Question("dlq")
    for _ in range(RUNNING_OF_USER_MAX):
        jobs.start("one", "Drop", question)
    with pytest.raises(ConfigError, match="jobs of one run now"):
        jobs.start("one", "Drop", question)
    assert jobs.start("other", "Drop", question).state == "running"


def test_chosen_letters_are_sent_again(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker:
        fill(broker)
        assert broker.name_server is not None
        with (
            fill_more(broker),
            ConsoleProcess(broker.name_server, tmp_path) as console,
            console.visitor() as visitor,
            console.visitor() as other,
        ):
            ids = eventually(lambda: found if len(found := chosen_by_boxes(visitor)) == DEAD else [])
            assert "choose dead letters first" in visitor.page(
                "/actions/redrive?f.group=billing&chosen=1", 400
            )
            boxes = f"f.group=billing&chosen=1&f.--ids={ids[0]}&f.--ids={ids[2]}"
            assert f'value="{ids[0]},{ids[2]}"' in visitor.page(f"/actions/redrive?{boxes}")
            started = visitor.act("redrive", group="billing", __ids=f"{ids[0]},{ids[2]}", __rate="20")
            assert started.status_code == 303
            page = started.headers["location"]
            text = eventually(lambda: found if "Done: 2 of 2." in (found := visitor.page(page)) else "")
            receipts = text.partition("Receipts</h2>")[2]
            assert receipts.count("<td>sent</td>") == 2
            assert all(each in receipts for each in (ids[0], ids[2]))
            assert "hx-trigger" not in text.partition("<main")[2]  # it has ended
            assert f'href="{page}"' in visitor.page("/jobs")
            for name in ("99", "x", "-1"):
                assert "there is no job" in visitor.page(f"/jobs/{name}", 404)
            log = console.log.read_text()
            assert "job 1 starts: firearrow dlq redrive" in log
            assert "job 1 done: firearrow dlq redrive" in log
            # a letter with another body, which no log has
            edited = visitor.act("redrive", group="billing", __ids=ids[1], __body='{"id": "edited"}\n')
            eventually(lambda: "Done: 1 of 1." in visitor.page(edited.headers["location"]))
            assert "edited" in visitor.page("/topics/orders/messages?json=id%3Dedited")
            assert "edited" not in console.log.read_text()
            slow = visitor.act("redrive", group="billing", __rate="0.01", __again="1").headers["location"]
            assert "Running" in visitor.page(slow)
            assert other.post(f"{slow}/stop", data={}).status_code == 400
            assert visitor.post(f"{slow}/stop", data={"csrf": visitor.token()}).headers["location"] == slow
            assert "it was stopped" in visitor.page(slow)
            # others, who have no letters to choose: a job that fails
            missing = other.act("redrive", group="billing", __ids="0" * 32)
            eventually(lambda: "Done in part" in other.page(missing.headers["location"]))
