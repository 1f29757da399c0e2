"""`python -m firearrow.broker`: the same as `firearrow broker`."""

import sys

from firearrow.broker.cli import cli

if __name__ == "__main__":
    cli(["broker", *sys.argv[1:]])
