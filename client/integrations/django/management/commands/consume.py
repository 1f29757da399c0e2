"""`manage.py consume`: runs the consumers of the project's handlers until SIGTERM or SIGINT."""

import threading
from argparse import ArgumentParser
from contextlib import ExitStack
from importlib import import_module

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import autoreload
from django.utils.module_loading import autodiscover_modules

from firearrow.client.base.errors import RocketMQError
from firearrow.client.consume.signals import stopped_by_signals
from firearrow.client.integrations.django.consumers import consumer_of, handlers


class Command(BaseCommand):
    help = (
        "Calls the functions that firearrow.client.integrations.django's `handler` declares with messages. "
        "On SIGTERM and SIGINT running handlers get the option drain_s to finish."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("groups", nargs="*", metavar="GROUP", help="only these consumer groups")
        parser.add_argument(
            "--module", action="append", default=[], help="also import the handlers of a module"
        )
        parser.add_argument(
            "--noreload",
            action="store_true",
            help="do not start again when a file changes (this is done only with DEBUG)",
        )

    def handle(self, *, groups: list[str], module: list[str], noreload: bool, **_: object) -> None:
        if settings.DEBUG and not noreload:
            autoreload.run_with_reloader(self._run, groups, module)
        else:
            self._run(groups, module)

    def _run(self, groups: list[str], modules: list[str]) -> None:
        autodiscover_modules("consumers")
        for module in modules:
            import_module(module)
        if unknown := set(groups) - handlers.keys():
            raise CommandError(f"no handler is of group {', '.join(sorted(unknown))}")
        chosen = groups or sorted(handlers)
        if not chosen:
            raise CommandError("there are no handlers: declare some in consumers.py of an application")
        stopped = threading.Event()
        with stopped_by_signals(stopped.set), ExitStack() as running:
            for group in chosen:
                try:
                    running.enter_context(consumer_of(group))
                except RocketMQError as error:
                    raise CommandError(f"group {group}: {error}") from error
                topics = ", ".join(sorted(handlers[group]))
                self.stdout.write(f"group {group} consumes {topics}", ending="\n")
                self.stdout.flush()
            stopped.wait()
            self.stdout.write("stopping")
