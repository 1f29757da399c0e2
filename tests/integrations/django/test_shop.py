"""The example with Django: its orders and mails, `manage.py consume`, a reload, a graceful stop."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.eventually import eventually

EXAMPLE = Path(__file__).parents[3] / "examples" / "django_shop"
POST = """
from django.test import Client
for article in {articles}:
    answer = Client(raise_request_exception=False).post("/orders/" + article)
    print(answer.status_code, answer.json())
"""


class Shop:
    """A copy of the example with its own database."""

    def __init__(self, folder: Path, name_server: str) -> None:
        self.folder = folder / "shop"
        shutil.copytree(EXAMPLE, self.folder, ignore=shutil.ignore_patterns("__pycache__", "*.sqlite3"))
        self.environment = os.environ | {"NAMESRV_ADDR": name_server, "DATABASE": str(folder / "database")}

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "manage.py", *words]

    def run(self, *words: str) -> str:
        done = subprocess.run(
            self.command(*words), cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def consuming(self, *words: str, debug: bool = False) -> Iterator["Consuming"]:
        environment = self.environment | ({"DEBUG": "1"} if debug else {})
        log = self.folder.parent / "consume.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                self.command("consume", *words), cwd=self.folder, env=environment, stdout=output,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
            try:
                yield Consuming(process, log)
            finally:
                process.kill()
                process.wait()


class Consuming:
    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log
        self.wait_for("group example-django-mail consumes example-django-orders")

    def text(self) -> str:
        return self._log.read_text()

    def wait_for(self, text: str, times: int = 1) -> None:
        eventually(lambda: self.text().count(text) >= times, 60, self.text)


@pytest.fixture
def shop_without_tables(tmp_path: Path, name_server: str) -> Shop:
    return Shop(tmp_path, name_server)


@pytest.fixture
def shop(shop_without_tables: Shop) -> Shop:
    shop_without_tables.run("migrate", "--run-syncdb")
    return shop_without_tables


def test_orders_and_their_mails(shop: Shop) -> None:
    with shop.consuming() as consuming:
        answers = shop.run("shell", "-c", POST.format(articles=["book", "sold-out", "lamp"])).splitlines()
        assert [line[:3] for line in answers if line[:3].isdigit()] == ["200", "409", "200"]
        consuming.wait_for("mail: your book is on its way")
        consuming.wait_for("mail: your lamp is on its way")
        consuming.process.send_signal(signal.SIGTERM)
        assert consuming.process.wait(30) == 0
        assert consuming.text().endswith("stopping\n")
        assert "sold-out" not in consuming.text()


def test_a_changed_file_starts_the_command_again(shop: Shop) -> None:
    with shop.consuming(debug=True) as consuming:
        path = shop.folder / "orders" / "consumers.py"
        path.write_text(path.read_text().replace("is on its way", "comes soon"))

        def is_started_again() -> bool:
            path.touch()  # again: the first change may come before the reloader looks
            return consuming.text().count("consumes example-django-orders") >= 2

        eventually(is_started_again, 60, consuming.text)
        shop.run("shell", "-c", POST.format(articles=["pen"]))
        consuming.wait_for("mail: your pen comes soon")
        consuming.process.send_signal(signal.SIGTERM)
        consuming.process.wait(30)


def test_what_the_command_refuses(shop_without_tables: Shop) -> None:
    shop = shop_without_tables

    def error(*words: str) -> str:
        done = subprocess.run(
            shop.command("consume", *words), cwd=shop.folder, env=shop.environment, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 1
        return done.stderr

    assert "no handler is of group other" in error("other")
    path = shop.folder / "project.py"
    path.write_text(path.read_text().replace('"CONSUMER"', '"CONSUMERR"'))
    assert "FIREARROW: unknown CONSUMERR" in error()
    path.write_text(path.read_text().replace('"CONSUMERR": {', '"CONSUMER": {"batch": 1, '))
    assert "unexpected keyword argument 'batch'" in error()
    (shop.folder / "orders" / "consumers.py").write_text("")
    assert "declare some in consumers.py" in error()
