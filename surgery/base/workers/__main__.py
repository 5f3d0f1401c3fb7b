"""Start the fork server: `python -m surgery.base.workers DESCRIPTOR`, with the control socket inherited."""

import sys

from surgery.base.workers.server import main

main(int(sys.argv[1]))
