"""Draw the terminal picture of the documentation from a real run: `make picture`."""

import io
import re
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.text import Text

import surgery
from surgery.interface.report import terminal

HERE = Path(__file__).parent
MODEL = "models/resnet-tiny.onnx"


def main() -> None:
    """Run the command of the README, and write its report as SVG."""
    console = Console(record=True, width=122, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    with TemporaryDirectory() as folder:
        result = surgery.apply(HERE.parent.parent / MODEL, "default", output=Path(folder) / "small.onnx")
    console.print(Text.assemble(("$ ", "dim"), f"surgery apply default {MODEL} -o small.onnx"))
    console.print(terminal.result(result), highlight=False, markup=False)
    drawn = console.export_svg(title="surgery", unique_id="surgery")
    # Only fonts of the system: a picture in a page must not load anything.
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL).replace("Fira Code", "DejaVu Sans Mono")
    (HERE / "apply.svg").write_text(re.sub(r"[ \t]+$", "", drawn, flags=re.MULTILINE), encoding="utf-8")


if __name__ == "__main__":
    main()
