"""`python -m firearrow.client.console`: the process that `firearrow broker --console` starts at a visit."""

import gc
import sys

if __name__ == "__main__":
    gc.disable()  # imports leave no garbage, and looking for it takes a tenth of their time
    from firearrow.client.console.server import main

    gc.freeze()
    gc.enable()
    sys.exit(main(sys.argv[1:]))
