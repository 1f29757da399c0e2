"""`python -m firearrow.broker`: the same as `firearrow broker`."""

import sys

from firearrow.broker.cli import main

if __name__ == "__main__":
    main(["broker", *sys.argv[1:]])
