"""Write the generated pages of the documentation: `python -m surgery.interface.docsgen FOLDER`."""

import argparse
import sys
from pathlib import Path

from surgery.interface import commands as cli
from surgery.interface.docsgen import manual, pages

parser = argparse.ArgumentParser(prog="python -m surgery.interface.docsgen", description=__doc__)
parser.add_argument("folder", metavar="FOLDER", type=Path)
parser.add_argument(
    "--man", action="store_true", help="write manual pages instead, for a folder such as share/man/man1"
)
arguments = parser.parse_args()
folder = arguments.folder
written = manual.pages(cli.parser()) if arguments.man else pages.generate()
for name, text in written.items():
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
sys.stderr.write(f"wrote {len(written)} pages into {folder}\n")
