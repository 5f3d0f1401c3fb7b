"""Start the fork server: `python -m surgery.workers DESCRIPTOR`, with the control socket inherited."""

import sys

from surgery.workers.server import main

main(int(sys.argv[1]))
