"""Open a model in the browser and edit it: every edit is a step of a recipe, and every step is verified.

The command starts a server that only this machine and the browser with the printed address can reach. It shows the
graph; what is selected can be edited, and each edit becomes a step, runs, and is compared with the original. Steps can
be undone, moved and switched off, and the recipe can be edited as text. Nothing is written until you save.

Every change is kept in a draft, which is opened again after a crash; --fresh starts without it.

Steps can only read files in the folder of the model, and the result is saved there. It needs the extra 'workbench':
pip install 'onnx-surgery[workbench]'.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.base.errors import UsageError
from surgery.interface.command_line import _output, _places, _plugins, _verification

if TYPE_CHECKING:
    from surgery.engine.pipeline.records import Observer
    from surgery.features.workbench.session import Session


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `open`."""
    parser.add_argument("model", metavar="MODEL", type=_places.model, help="an .onnx file")
    parser.add_argument(
        "--recipe", metavar="RECIPE", type=_places.recipe, help="a recipe file, or the name of a shipped recipe"
    )
    parser.add_argument("--port", metavar="N", type=int, default=0, help="the port of the server (default: a free one)")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument("--fresh", action="store_true", help="ignore the draft of an earlier session")
    parser.add_argument("--trust", action="store_true", help="allow the recipe to run local code")
    _plugins.add_argument(parser)


def main(arguments: argparse.Namespace) -> int:
    """Serve the workbench until it is interrupted."""
    try:
        from surgery.interface.workbench.serving import bound, serve
    except ModuleNotFoundError as error:
        todo = "pip install 'onnx-surgery[workbench]'"
        raise UsageError(f"the workbench needs {error.name}, which is not installed", todo=todo) from error
    from surgery.interface.workbench.desk import Desk

    _verification.start()
    _plugins.load(arguments)
    with bound(arguments.port) as socket:
        desk = Desk(partial(_session, arguments), Path(arguments.model).resolve().parent)
        with suppress(KeyboardInterrupt):
            serve(desk, socket, browser=not arguments.no_browser, say=_say)
    return 0


def _say(address: str) -> None:
    _output.write_text(f"{address}\n")


def _session(arguments: argparse.Namespace, observer: Observer) -> Session:
    from surgery.features.workbench.session import Session

    model = Path(arguments.model)
    return Session.open(
        model,
        arguments.recipe,
        trust=arguments.trust,
        fresh=arguments.fresh,
        observer=observer,
        within=model.resolve().parent,
    )
