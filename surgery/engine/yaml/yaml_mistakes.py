"""Messages for YAML syntax errors."""

from __future__ import annotations

import re
from typing import Any

# The parser's context and problem (ruamel.yaml 0.19) -> the message. The last column selects the position: where the
# faulty construct begins ("start"), or where the parser noticed the error ("here").
_WORDS: tuple[tuple[str, str, str, str], ...] = (
    (r"", r"character '\\t'", "tabs are not allowed here; use spaces", "here"),
    (r"", r"character '([>|@`%*&!,])'", r"a text that begins with '\1' needs quotes", "here"),
    (r"block scalar", r"", "a text that begins with '>' or '|' needs quotes: \"> 1\"", "start"),
    (r"quoted scalar", r"end of stream|document separator", "this quote is never closed", "start"),
    (r"double-quoted", r"", r"no such escape in double quotes; write '\\\\' or use single quotes", "here"),
    (r"flow sequence", r"<stream end>|<document", "this '[' is never closed", "start"),
    (r"flow mapping", r"<stream end>|<document", "this '{' is never closed", "start"),
    (r"flow sequence", r"", "a list in brackets needs ',' or ']' here", "here"),
    (r"flow mapping", r"", "a mapping in braces needs ',' or '}' here", "here"),
    (r"simple key", r"expected ':'", "a ':' is missing after this key", "start"),
    (r"", r"mapping values", "a ':' is not allowed here; check the indentation, or quote the text", "here"),
    (r"", r"sequence entries", "a '-' is not allowed here; put the list on its own lines, indented", "here"),
    (r"", r"mapping keys", "a '?' is not allowed here; quote the text", "here"),
    (r"block", r"found '<scalar>'", "the value before this has ended; check the quotes and the indentation", "here"),
    (r"block collection", r"", "this does not line up with the list above; check the indentation", "here"),
    (r"block mapping", r"", "this does not line up with the keys above; check the indentation", "here"),
    (r"", r"node content", "a value is missing here", "here"),
    (r"alias", r"", "a '*' begins an alias and needs a name; quote the text", "here"),
    (r"anchor", r"", "a '&' begins an anchor and needs a name; quote the text", "here"),
    (r"tag", r"", "a '!' begins a YAML tag; quote the text", "here"),
    (r"", r"tag handle", "a '!' begins a YAML tag; quote the text", "here"),
    (r"directive", r"", "a '%' at the start of a line begins a YAML directive; quote the text", "here"),
    (r"", r"directive|version", "a recipe is YAML 1.2 and needs no '%YAML' line", "here"),
    (r"", r"document start|document end", "a recipe is one YAML document; nothing can follow here", "here"),
)
OTHER = "this is not YAML; check the indentation and the quotes"


def explain(error: Any) -> tuple[str, Any]:
    """Return the message for a parser error, and its mark, or None if the parser gave no position."""
    context, complaint = str(error.context or ""), str(error.problem or "")
    for in_context, in_complaint, words, place in _WORDS:
        found = re.search(in_complaint, complaint)
        if found and re.search(in_context, context):
            mark = error.context_mark if place == "start" and error.context_mark else error.problem_mark
            return found.expand(words), mark or error.context_mark
    return OTHER, error.problem_mark or error.context_mark
