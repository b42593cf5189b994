"""Write deploy/brainsurgeon.1 and the generated parts of deploy/docs: `python deploy/man.py`."""

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import typer

from brainsurgeon.cli.commands import application
from brainsurgeon.config import Settings
from brainsurgeon.config.loading import flat, toml

TOP = Path(__file__).parent.parent
PAGE = TOP / "deploy" / "brainsurgeon.1"
COMMANDS = TOP / "deploy" / "docs" / "commands.md"
CONFIGURATION = TOP / "deploy" / "docs" / "configuration.md"
EACH = re.compile(r"(<!-- commands -->\n)(.*?)(<!-- end of commands -->)", re.DOTALL)
HELP = re.compile(r"(<!-- help -->\n```text\n)(.*?)(```\n<!-- end of help -->)", re.DOTALL)
KEYS = re.compile(r"(<!-- keys -->\n)(.*?)(<!-- end of keys -->)", re.DOTALL)
# The options of every command, and a heading below which nothing else is left.
COMMON = re.compile(
    r"(\n\nOptions:)?(\n  --json +Print one JSON document\.)?\n  --config FILE .*\n  -h, --help .*"
)
HEAD = """\
.\\" Made by deploy/man.py from the help of the program; not edited by hand.
.TH BRAINSURGEON 1
.SH NAME
brainsurgeon \\- keep the session files of coding agents lean
.SH SYNOPSIS
.B brainsurgeon
.RI [ options ]
.I command
.RI [ arguments ]
"""
FILES = (
    (
        "~/.config/brainsurgeon/config.toml, /etc/brainsurgeon/config.toml",
        "The configuration: the first of these files that exists. `brainsurgeon config` prints it.",
    ),
    ("~/.local/state/brainsurgeon",
     "The store with the extracted values, its locks, and the record of `init`."),
)  # fmt: skip
ENVIRONMENT = (
    ("BRAINSURGEON_CONFIG", "The configuration file to use."),
    ("BRAINSURGEON_<KEY>", "Overrides a key of the configuration."),
    (("OPENCLAW_STATE_DIR, CLAUDE_CONFIG_DIR, PI_CODING_AGENT_DIR, CODEX_HOME, COPILOT_HOME, "
     "GEMINI_CLI_HOME"),
     "The directories of the agents."),
    ("NO_COLOR", "Print no colours, unless `--color always` asks for them."),
)  # fmt: skip


def page() -> str:
    top = program()
    parts = [HEAD, ".SH DESCRIPTION\n", paragraphs(top.command.help), ".SH OPTIONS\n", options(top)]
    parts.append(".SH COMMANDS\n")
    for words, context in commands(top):
        usage = " ".join((*words, *context.command.collect_usage_pieces(context)))
        parts += [f".SS {plain(usage)}\n", paragraphs(context.command.help), options(context)]
    parts += [".SH EXIT STATUS\n", *(tagged(*one) for one in codes())]
    parts += [".SH FILES\n", *(tagged(*one) for one in FILES)]
    parts += [".SH ENVIRONMENT\n", *(tagged(*one) for one in ENVIRONMENT)]
    return "".join(parts)


def program() -> typer.Context:
    group = typer.main.get_command(application())
    return typer.Context(group, **group.context_settings)


def commands(group: typer.Context, *before: str) -> Iterator[tuple[tuple[str, ...], typer.Context]]:
    """Yield every command that does something, with its words: not `store`, but `store backup`."""
    for name, command in group.command.commands.items():
        context = typer.Context(command, parent=group)
        inner = hasattr(command, "commands")
        yield from commands(context, *before, name) if inner else [((*before, name), context)]


def options(context: typer.Context) -> str:
    listed = (one.get_help_record(context) for one in context.command.get_params(context))
    return "".join(tagged(*one) for one in listed if one)


def paragraphs(text: str) -> str:
    """Format a help text. Blocks that begin with a backspace keep their lines."""
    parts = []
    for block in inspect.cleandoc(text).split("\n\n"):
        kept = block.startswith("\b\n")
        lines = "\n".join(plain(line) for line in block.removeprefix("\b\n").split("\n"))
        parts.append(f".PP\n.nf\n{lines}\n.fi\n" if kept else f".PP\n{lines}\n")
    return "".join(parts)


def tagged(name: str, text: str) -> str:
    return f".TP\n\\fB{plain(name)}\\fR\n{plain(text)}\n"


def plain(text: str) -> str:
    """Escape the characters that are commands of the formatter."""
    escaped = (
        text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...").replace("`", "\\(ga")
    )
    return re.sub(r"(?m)^(?=[.'])", r"\\&", escaped)


def codes() -> list[tuple[str, str]]:
    """Return the exit codes and their meanings from the reference."""
    return re.findall(r"^\| (\d+) \| (.*) \|$", COMMANDS.read_text(), re.MULTILINE)


def help_of(*words: str) -> str:
    environment = {"COLUMNS": "80", "PATH": "/usr/bin:/bin", "TERM": "dumb"}
    environment["PYTHONPATH"] = str(TOP / "src")  # another copy of the program may be installed
    done = subprocess.run(  # noqa: S603  words of our own
        [sys.executable, "-m", "brainsurgeon", *words, "--help"], capture_output=True, text=True,
        check=True, env=environment,
    )  # fmt: skip
    return done.stdout.replace("python -m brainsurgeon", "brainsurgeon")


def help_of_commands() -> str:
    names = [words for words, _ in commands(program())]
    helps = ((words, COMMON.sub("", help_of(*words)).rstrip()) for words in names)
    return "\n".join(f"### {' '.join(words)}\n\n```text\n{text}\n```\n" for words, text in helps)


def keys() -> str:
    of_user = {"roots": "see [roots](#roots)", "state_dir": "`~/.local/state/brainsurgeon`"}
    rows = ["| key | default | description |", "| --- | --- | --- |"]
    for key, value, description in flat(Settings()):
        text = "none" if value == {} else "not set" if value is None else f"`{toml(value)}`"
        rows.append(f"| `{key}` | {of_user.get(key, text)} | {description} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    PAGE.write_text(page())
    parts = (
        (COMMANDS, HELP, help_of()),
        (COMMANDS, EACH, help_of_commands()),
        (CONFIGURATION, KEYS, keys()),
    )
    for path, part, made in parts:
        text = path.read_text()
        path.write_text(part.sub(lambda found, made=made: found[1] + made + found[3], text))


if __name__ == "__main__":
    main()
