"""What commands print, compared with what pages show."""

import re


def normalized(text: str) -> str:
    """Return an output without what differs from one machine to the next: distances, durations, the width of lines.

    A model names the versions of packages that made it, so of its size only the whole kB are compared.
    """
    text = re.sub(r"^.*: needed rtol .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"\d\.\d+e-\d+|\d+\.\d+$", "#", text, flags=re.MULTILINE)
    text = re.sub(r"(\d+)\.\d( kB| ->)", r"\1\2", text)
    text = re.sub(r"(?<=, )\d+(\.\d+)? s(?=\. )", "# s", text)
    return " ".join(text.split()).replace(", or as close to float64 as the original is,", "")
