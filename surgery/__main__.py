"""Lets `python -m surgery` be the command line."""

import sys

from surgery.cli import main

sys.exit(main())
