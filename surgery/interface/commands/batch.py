"""Apply a recipe to many models, each in a separate process, and record the results in a ledger.

SOURCE is an .onnx file, a folder (with all folders below it), a glob, or a manifest: a .txt file with one path on each
line, or .jsonl or .csv with the keys model, recipe, output, inputs and skip. Results have the same paths below --out.
The recipe, sources, models and recipes of manifests, and --out may be URLs, such as s3://bucket/zoo/.

Run the same command again to continue after an interruption. It also reruns models whose file, recipe, settings or
package versions changed. The exit code is 1 if any model failed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.base.errors import UsageError
from surgery.engine.batching.model_entry import BatchLimits, Settings
from surgery.engine.recipe.schema import ON_FAILURE
from surgery.interface.command_line import _output, _places, _plugins, _settings, _signals, _targets, _verification

if TYPE_CHECKING:
    from surgery.engine.batching.batch import Batch, BatchResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `batch`."""
    parser.add_argument(
        "recipe",
        metavar="RECIPE",
        help="a recipe file, or the name of a shipped recipe; a model or folder in its place means 'default'",
    )
    parser.add_argument("sources", metavar="SOURCE", nargs="*", help="a file, a folder, a glob or a manifest")
    parser.add_argument(
        *("-o", "--out"), metavar="DIR", required=True, help="write results and the ledger below this folder"
    )
    parser.add_argument("--ledger", metavar="DIR", help="keep the ledger in this folder, if --out is a URL")
    parser.add_argument(
        "--include",
        metavar="GLOB",
        action="append",
        default=[],
        help="include only these files of folders; may be repeated",
    )
    parser.add_argument(
        "--exclude", metavar="GLOB", action="append", default=[], help="exclude these files of folders; may be repeated"
    )
    _add_running(parser)
    _add_results(parser)
    parser.add_argument("--force", action="store_true", help="run all models again, and overwrite existing files")
    _targets.add_argument(parser)
    parser.add_argument(
        "--layout",
        choices=["keep", "single", "external"],
        default="keep",
        help="where to store the weights: as in the input, inside the file, or in FILE.data (default: keep)",
    )
    parser.add_argument("--on-failure", choices=ON_FAILURE, help="what to do if a step fails (default: as for apply)")
    parser.add_argument(
        "--strict", action="store_true", help="treat a model as failed if any part of a step was undone"
    )
    parser.add_argument("--trust", action="store_true", help="allow recipes to run local code")
    _plugins.add_argument(parser)
    group = parser.add_argument_group("verification")
    _verification.add_library_argument(group)
    _verification.add_unverified_argument(group)


def _add_running(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("running")
    group.add_argument(
        "-j",
        "--jobs",
        metavar="N",
        type=int,
        help="number of models to run at the same time (default: one per processor)",
    )
    group.add_argument(
        "--executor",
        metavar="NAME[:ADDRESS]",
        default="local",
        help="where to run the models: local, or dask:ADDRESS with the address of a dask.distributed scheduler "
        "(default: local)",
    )
    group.add_argument("--timeout", metavar="SECONDS", type=float, help="time limit of one model")
    group.add_argument("--memory", metavar="SIZE", help="memory limit of one model, such as 4GB")
    group.add_argument("--total-memory", metavar="SIZE", help="memory limit of all models that run at the same time")
    group.add_argument(
        "--retries",
        metavar="N",
        type=int,
        default=3,
        help="how often to retry a model whose worker was lost for another reason (default: 3)",
    )
    group.add_argument("--retry-failed", action="store_true", help="also run failed models again")
    group.add_argument("--max-failures", metavar="N", type=int, help="start no more models after N failures")


def _add_results(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("results")
    group.add_argument("--results", metavar="FILE", help="write a line for each model to FILE: .jsonl or .parquet")
    group.add_argument(
        *("--report", "--html"),
        metavar="FILE",
        type=_places.page,
        help="write a summary with charts to FILE: one .html file",
    )


def main(arguments: argparse.Namespace) -> int:
    """Run a batch."""
    _complete(arguments)
    given = _given(arguments)
    _check_files(arguments)
    from surgery.base import workers

    if given.executor == "local":
        workers.start()
    from surgery.engine.batching.batch import batch
    from surgery.interface.report.batch import BatchProgress

    progress = BatchProgress(_output.messages(), verbose=arguments.verbose > 0, interactive=_output.is_interactive())
    try:
        with progress:
            result = batch(given, progress)
    except KeyboardInterrupt as error:
        _, code = _signals.account(error)
        _output.say(f"surgery: interrupted; {progress.account()}; run the same command again to continue")
        return code
    _write_files(result, arguments)
    _report(result, arguments)
    return result.exit_code


def _complete(arguments: argparse.Namespace) -> None:
    """Fill in the recipe 'default' where a model or a folder stands in its place; UsageError if there is no source."""
    from surgery.engine.recipe import recipe_lookup

    given = arguments.recipe
    if given.endswith(".onnx") or (Path(given).is_dir() and given not in recipe_lookup.names()):
        arguments.recipe, arguments.sources = "default", [given, *arguments.sources]
    if not arguments.sources:
        raise UsageError("SOURCE is missing", todo=f"pass models or a folder: surgery batch {given} models -o DIR")


def _check_files(arguments: argparse.Namespace) -> None:
    """Raise UsageError or OutputError if results or the report cannot be written, before anything runs.

    Existing files are replaced, because a repeated command finds those of its last run.
    """
    if arguments.out == _places.STREAM:
        raise UsageError("standard output takes one file, and this command writes several", todo="name a folder")
    if arguments.results is not None:
        from surgery.engine.batching import results

        results.check(Path(arguments.results))
    if arguments.report is not None:
        from surgery.model import storage

        storage.check_target(arguments.report, force=True)


def _write_files(result: BatchResult, arguments: argparse.Namespace) -> None:
    """Write the requested files."""
    if arguments.results is not None:
        from surgery.engine.batching import results

        results.write(Path(arguments.results), result.rows)
    if arguments.report is not None:
        from surgery.interface.pages import batches
        from surgery.interface.report.batch import models
        from surgery.model import storage
        from surgery.model.remote import urls

        recipe = arguments.recipe
        name = urls.name_of(recipe) if urls.is_url(recipe) else Path(recipe).name
        title = f"{name} on {models(len(result.rows))}"
        storage.write_texts({Path(arguments.report): batches.report(result.to_json(), title)})
    for path in filter(None, (arguments.results, arguments.report)):
        _output.messages().print(f"wrote {path}", soft_wrap=True)


def _given(arguments: argparse.Namespace) -> Batch:
    from surgery.engine.batching.batch import Batch
    from surgery.engine.batching.schedule import Rules

    for flag, least in (("jobs", 1), ("retries", 0), ("max_failures", 1)):
        value = getattr(arguments, flag)
        if value is not None and value < least:
            raise UsageError(f"--{flag.replace('_', '-')} must be at least {least}, not {value}")
    if arguments.timeout is not None and not arguments.timeout > 0:
        raise UsageError(f"--timeout must be a number of seconds, not {arguments.timeout:g}")
    return Batch(
        arguments.recipe,
        tuple(arguments.sources),
        arguments.out,
        Settings(
            trust=arguments.trust,
            plugins=tuple(_whole(plugin) for plugin in arguments.plugin),
            target=_whole(arguments.target) if arguments.target is not None else None,
            layout=arguments.layout,
            on_failure=arguments.on_failure,
            strict=arguments.strict,
            unverified=arguments.unverified,
            custom_op_libraries=tuple(str(path.resolve()) for path in _verification.libraries(arguments)),
            providers=tuple(arguments.provider),
        ),
        BatchLimits(
            arguments.timeout,
            _settings.size("memory", arguments.memory),
            _settings.size("total-memory", arguments.total_memory),
        ),
        Rules(arguments.retries, arguments.max_failures),
        Path(arguments.ledger) if arguments.ledger is not None else None,
        arguments.jobs,
        arguments.executor,
        tuple(arguments.include),
        tuple(arguments.exclude),
        arguments.retry_failed,
        arguments.force,
    )


def _whole(text: str) -> str:
    """Return a name unchanged, or the absolute path of a file, because workers run in other folders."""
    return str(Path(text).absolute()) if Path(text).is_file() else text


def _report(result: BatchResult, arguments: argparse.Namespace) -> None:
    """Write the report to stdout."""
    if arguments.format == "json":
        _output.write_json(result.to_json())
        return
    from surgery.interface.report import batch as report

    if arguments.quiet:
        _output.write(report.conclusion(result))
        return
    _output.write(report.result(result, every=arguments.verbose > 0))
    given = Path(arguments.ledger or arguments.out) / result.ledger.name
    ledger = given if given.exists() and given.samefile(result.ledger) else result.ledger
    _output.messages().print(f"the ledger is {ledger}", soft_wrap=True)
