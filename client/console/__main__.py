"""`python -m firearrow.client.console`: the process that `firearrow broker --console` starts at a visit."""

import sys

from firearrow.client.console.server import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
