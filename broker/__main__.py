"""`python -m firearrow.broker` is `firearrow broker`."""

import sys

from firearrow.broker.cli import cli

if __name__ == "__main__":
    cli(["broker", *sys.argv[1:]])
