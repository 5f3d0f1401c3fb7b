"""Write the generated pages of the documentation: `python -m surgery.docsgen FOLDER`."""

import argparse
import sys
from pathlib import Path

from surgery.docsgen import pages

parser = argparse.ArgumentParser(prog="python -m surgery.docsgen", description=__doc__)
parser.add_argument("folder", metavar="FOLDER", type=Path)
folder = parser.parse_args().folder
written = pages.generate()
for name, text in written.items():
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
sys.stderr.write(f"wrote {len(written)} pages into {folder}\n")
