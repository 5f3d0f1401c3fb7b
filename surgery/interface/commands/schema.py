"""Write the JSON schema of recipes, including all installed passes and their options, or that of a report.

Editors use it to complete recipes and to mark mistakes. With the YAML extension of VS Code, put
`# yaml-language-server: $schema=recipe.schema.json` on the first line of a recipe.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from surgery.base.errors import OutputError
from surgery.interface.command_line import _output, _places, _plugins
from surgery.interface.report.formats import report_schemas


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `schema`."""
    parser.add_argument(
        "report",
        metavar="COMMAND",
        nargs="?",
        choices=report_schemas.names(),
        help="a command, such as apply or recipe-check: write the schema of its JSON report (default: that of recipes)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the schema to FILE (default: stdout)")
    parser.add_argument(
        "--force", action="store_true", help="overwrite an existing file even if it is not a schema of surgery"
    )
    parser.add_argument("--targets", action="store_true", help="write the schema of target profiles instead")
    _plugins.add_argument(parser)


def main(arguments: argparse.Namespace) -> int:
    """Write the schema."""
    from surgery.engine.recipe import jsonschema

    _plugins.load(arguments)
    if arguments.report is not None:
        schema = report_schemas.schema(arguments.report)
    else:
        schema = jsonschema.of_profiles() if arguments.targets else jsonschema.schema()
    if arguments.output in (None, _places.STREAM):
        _output.write_document(schema)
        return 0
    path = Path(arguments.output)
    if path.exists() and not arguments.force and not _is_ours(path, schema["title"]):
        raise OutputError(f"'{path}' exists and is not a schema of surgery", todo="pass --force to overwrite it")
    try:
        path.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise OutputError(f"'{path}' cannot be written: {error.strerror}") from error
    _output.messages().print(f"wrote {path}", soft_wrap=True)
    return 0


def _is_ours(path: Path, title: str) -> bool:
    """Return whether a file is a schema of surgery, which may be overwritten."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("title") == title
