"""The commands that write a file for others to look at: a page, figures for a monitor."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Annotated

import typer

from brainsurgeon.cli.given import Config, Json, print_json, say, settings_of, store_to_read


def report(
    output: Annotated[
        str | None,
        typer.Option("--output", help="Where the page goes; else report.html in state_dir."),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    previews: Annotated[
        bool, typer.Option("--previews", help="Also show how each extracted value begins.")
    ] = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """Write a page about everything: savings, sizes, what comes next, what waits and why.

    It is one file that needs no network; without --previews no content of a session is in it.

    \b
    Examples:
      brainsurgeon report --open
      brainsurgeon report --output ~/sessions.html
    """  # noqa: D301
    settings = settings_of(config, json=json)
    from brainsurgeon.cli.progress import progress_bar
    from brainsurgeon.operations.ahead import largest_ahead
    from brainsurgeon.operations.report import TAKEN_APART
    from brainsurgeon.operations.report import report as operation
    from brainsurgeon.outputs import PRIVATE, write_whole
    from brainsurgeon.render.report import report as render
    from brainsurgeon.store.opening import make_directory

    if output is None:
        make_directory(settings.state_dir)
    path = os.path.abspath(output or os.path.join(settings.state_dir, "report.html"))
    with store_to_read(settings) as store:
        ahead = partial(largest_ahead, settings, TAKEN_APART)
        with progress_bar("looking at", ahead, quiet=json) as progress:
            page = operation(settings, store, time.time(), previews=previews, progress=progress)
    write_whole(path, render(page), PRIVATE)
    if json:
        print_json({"path": path, "size_bytes": os.stat(path).st_size})
    else:
        say(path)
    if show:
        import webbrowser
        from pathlib import Path

        webbrowser.open(Path(path).as_uri())


def metrics(
    output: Annotated[
        str | None, typer.Option("--output", help="Where the figures go; else to stdout.")
    ] = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Print figures for Prometheus: of the store, without a look at any session.

    With metrics_file in the configuration they are written after each pass, too.

    \b
    Example:
      brainsurgeon metrics --output /var/lib/node-exporter/brainsurgeon.prom
    """  # noqa: D301
    settings = settings_of(config, json=json)
    from brainsurgeon.operations.metrics import metrics as operation
    from brainsurgeon.outputs import READABLE, write_whole
    from brainsurgeon.render.metrics import metrics as render
    from brainsurgeon.render.metrics import metrics_json

    with store_to_read(settings) as store:
        measured = operation(settings, store)
    if output is not None:
        write_whole(os.path.abspath(output), render(measured), READABLE)
    elif json:
        print_json(metrics_json(measured))
    else:
        print(render(measured), end="")
