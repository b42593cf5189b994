"""The typer application: all commands, and the messages of their errors."""

import gc
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import typer
from typer import Option
from typer.core import TyperGroup

from brainsurgeon import __version__, interruption, render
from brainsurgeon.cli import options
from brainsurgeon.cli.options import Color, Command, Config, OutputError, given, shared
from brainsurgeon.errors import BrainsurgeonError, UsageError
from brainsurgeon.model.text import readable_lines

# The module of each command but `store`. Only the module of the given command is imported.
COMMANDS = {
    "scan": "run", "status": "run", "restore": "change", "pin": "change", "extract": "change",
    "archive": "change", "pause": "change", "sessions": "show", "show": "show",
    "evidence": "show", "history": "show", "init": "setup", "config": "setup", "hook": "setup",
    "run": "run", "mcp": "run", "relieve": "change", "doctor": "run",
}  # fmt: skip
# The headings of the help, by the first command below each.
HEADINGS = {
    "scan": "Every day",
    "sessions": "Inspecting",
    "init": "Setting up",
    "relieve": "When something is wrong",
}
# The names of commands in 0.1.0. They still work, unless the replacement has a word in capitals.
RENAMED = {
    "cat": "show",
    "context": "sessions",
    "retention": "scan --retention",
    "set-extractable": "pin ENTRY, pin ENTRY --recent N or extract ENTRY",
}


_LONGEST_ERROR = 4000  # characters


class Commands(TyperGroup):
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in RENAMED and args[0] not in self.commands:
            words = RENAMED[args[0]]
            if any(word.isupper() for word in re.findall(r"[A-Za-z]+", words)):
                raise UsageError(f"`{args[0]}` is now: brainsurgeon {words}")
            print(f"brainsurgeon: `{args[0]}` is now `{words}`", file=sys.stderr)
            args = [*words.split(), *args[1:]]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        width = max(map(len, self.commands))
        rows: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            if command.hidden:
                continue
            heading = HEADINGS.get(name) or next(reversed(rows))
            short = command.get_short_help_str(formatter.width - 6 - width)
            rows.setdefault(heading, []).append((name.ljust(width), short))
        for heading, listed in rows.items():
            with formatter.section(heading):
                formatter.write_dl(listed)


def run() -> int:
    """Run the command and return its exit code. Raises OutputError and BrokenPipeError."""
    try:
        code = application(sys.argv[1:2])(standalone_mode=False)
    except (OutputError, BrokenPipeError):
        raise
    except BrainsurgeonError as error:
        return _print_error(str(error), error.exit_code, in_json=given.json, **error.facts())
    except typer.Abort:
        return 130
    except Exception as error:  # noqa: BLE001  no user sees a traceback
        if code := interruption.exit_code():  # a library replaced the signal handler's exception
            return code
        if hasattr(error, "show"):
            return _print_usage_error(error)
        return _print_error(render.formatting.unexpected(error), 1, in_json=given.json)
    return code if isinstance(code, int) else 0


def _print_error(message: str, code: int, *, in_json: bool, **facts: object) -> int:
    if in_json:
        options.print_json({"error": message, "exit_code": code, **facts})
    text = readable_lines(render.formatting.in_local_time(message))
    if len(text) > _LONGEST_ERROR:  # somebody gave a whole document for a name
        text = f"{text[: _LONGEST_ERROR // 2]} … {text[-_LONGEST_ERROR // 4 :]}"
    print(f"brainsurgeon: {text}", file=sys.stderr)
    return code


def _print_usage_error(error: Any) -> int:
    code, message = int(getattr(error, "exit_code", 2)), error.format_message()
    if message.startswith("Usage: "):  # a command is missing: show the whole help
        error.show()
        return code
    # The parser of options gives its errors no context.
    unknown = " ".join(["brainsurgeon", *(word for word in sys.argv[1:2] if word.isalpha())])
    words = getattr(getattr(error, "ctx", None), "command_path", unknown)
    text = message.replace("Value error, ", "").strip().rstrip(".")
    text = re.sub(r"\. Did you mean ('.*?')\?", r"; did you mean \1?", text)
    text = re.sub(r"Input should be a valid integer.*", "wants a whole number", text)
    text = text.replace("Input should be greater than or equal to", "wants a number of at least")
    text = f"{text[:1].lower()}{text[1:]}; `{words} --help` says more"
    return _print_error(text, code, in_json="--json" in sys.argv)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"brainsurgeon {__version__}")
        raise typer.Exit


def _options(
    config: Config = None,
    color: Color = Option(
        Color.auto, help="Colours: on a terminal without NO_COLOR (auto), always or never."
    ),
    version: bool = Option(  # noqa: ARG001  its callback does the work
        False, "--version", help="Print the version.", is_eager=True, callback=_print_version
    ),
) -> None:
    """Keep the session files of coding agents lean, and restore every byte on demand.

    \b
    Example:
      brainsurgeon scan --dry-run      show what would be extracted
    """  # noqa: D301
    gc.freeze()  # garbage collections need not examine the loaded modules
    gc.enable()
    given.config, given.color = config, color
    if color is Color.never:
        os.environ["NO_COLOR"] = "1"  # progress bars and logs obey it, too


def application(words: Sequence[str] = ()) -> typer.Typer:
    made = typer.Typer(
        cls=Commands, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip
    made.callback()(_options)
    chosen = [name for name in words if name in COMMANDS]
    for name in chosen or COMMANDS:  # adding a command takes 1 ms
        function = getattr(import_module(f"brainsurgeon.cli.{COMMANDS[name]}"), name)
        command = shared(function, in_json=name not in ("run", "mcp", "hook"))
        made.command(name, cls=Command, hidden=name == "hook")(command)  # agents call `hook`
    if not chosen:
        from brainsurgeon.cli.store import store

        made.add_typer(store)
    return made
