"""What commands print, compared with what pages show."""

import re


def normalized(text: str) -> str:
    """Return an output without what differs from one machine to the next: distances, durations, the width of lines."""
    text = re.sub(r"^.*: needed rtol .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"\d\.\d+e-\d+|\d+\.\d+$", "#", text, flags=re.MULTILINE)
    return " ".join(text.split()).replace(", or as close to float64 as the original is,", "")
