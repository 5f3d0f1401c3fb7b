"""The appearance of statuses: a sign, a word and a tone, so that they do not differ only in color."""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup


class Mark(NamedTuple):
    """A sign, the word for it, and the tone: "ok", "warn", "bad", "info" or "none".

    Of a verdict also a sentence on the result of a run, and one on the outputs of two models.
    """

    sign: str
    word: str
    tone: str
    result: str = "The result could not be compared with the original."
    outputs: str = "The outputs could not be compared."

    def __html__(self) -> str:
        sign = Markup('<span class="chip {}"><span aria-hidden="true">{}</span>{}</span>')
        return str(sign.format(self.tone, self.sign, self.word))


VERDICTS = {
    "equal": Mark("=", "equal", "ok", "The result is bit-identical to the original.", "The outputs are bit-identical."),
    "close": Mark("\u2248", "close", "ok", "The result agrees with the original.", "The outputs agree."),
    "different": Mark("\u2260", "different", "bad", "The result differs from the original.", "The outputs differ."),
    "unverified": Mark("?", "unverified", "warn"),
    "lossy": Mark("\u2193", "lossy", "info", "The result is less accurate on purpose, within its budget."),
    "intended": Mark("\u2192", "intended", "info", "The results were changed on purpose."),
}
STATUSES = {
    "committed": Mark("\u2713", "committed", "ok"),
    "unchanged": Mark("\u00b7", "unchanged", "none"),
    "rolled_back": Mark("\u21ba", "rolled back", "warn"),
    "skipped": Mark("\u00b7", "skipped", "none"),
    "failed": Mark("\u2715", "failed", "bad"),
}
HOLDS, MISSED = Mark("\u2713", "holds", "ok"), Mark("\u2715", "missed", "bad")


def verdict(name: str | None) -> Mark:
    """Return the mark of a verdict."""
    return VERDICTS.get(name or "", Mark("\u2013", name or "not compared", "none"))


def status(name: str) -> Mark:
    """Return the mark of the status of a step."""
    return STATUSES.get(name, Mark("\u2013", name, "none"))
