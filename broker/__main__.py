"""`python -m firearrow.broker`: the same as `firearrow broker`."""

import sys

from firearrow.broker.cli import broker

if __name__ == "__main__":
    sys.exit(broker(sys.argv[1:]))
