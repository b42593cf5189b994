"""README, reference, agents' pages, man page and issue forms, compared with the program."""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from brainsurgeon import errors
from brainsurgeon.cli.commands import application
from building.world import TOP

README = TOP / "README.md"
PAGES = [
    README, *sorted((TOP / "deploy").glob("*/*.md")), *sorted((TOP / ".github").glob("*.md")),
]  # fmt: skip


def script(name):
    spec = importlib.util.spec_from_file_location(name, TOP / "deploy" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def man():
    return script("man")


def test_readme_is_short_and_links_the_reference():
    """The README has at most 1,800 words and links every page of deploy/docs."""
    text = README.read_text()

    assert len(text.split()) <= 1_800
    pages = (TOP / "deploy" / "docs").glob("*.md")
    assert all(f"(deploy/docs/{page.name}" in text for page in pages)


def test_picture_is_up_to_date():
    """The picture is the output of deploy/picture.py."""
    picture = script("picture")

    assert picture.PICTURE.read_text() == picture.picture()


def test_reference_has_the_help_of_every_command(man):
    """The help in the reference is the output of `--help` (else run deploy/man.py)."""
    page = man.COMMANDS.read_text()

    assert man.HELP.search(page)[2] == man.help_of()
    assert man.EACH.search(page)[2] == man.help_of_commands()


def test_man_page_is_up_to_date(man):
    """The man page has the help of every command (else run deploy/man.py)."""
    assert man.PAGE.read_text() == man.page()


def test_man_page_lists_every_option_and_argument_of_every_command(man):
    """The section of each command, also of one in a group, has all its options and arguments."""
    page = man.PAGE.read_text().replace("\\-", "-")
    sections = {text.split(" [OPTIONS]")[0]: text for text in re.split(r"(?m)^\.S[SH] ", page)}
    listed = set()
    for words, command in _commands(typer.main.get_command(application())):
        tags = " ".join(re.findall(r"(?m)^\\fB(.*)\\fR$", sections[words]))
        for one in command.params:
            argument = one.param_type_name == "argument"
            names = [one.metavar or one.name.upper()] if argument else one.opts
            if not getattr(one, "hidden", False):
                assert all(name in re.split(r"[ ,]+", tags) for name in names), (words, names)
                listed.update((words, name) for name in names)
    assert {
        ("store backup", "FILE"), ("store backup", "--force"), ("store restore", "FILE"),
        ("store restore", "--yes"), ("store purge", "--even-so"), ("store purge", "--yes"),
        ("restore", "TIME"), ("show", "ENTRY|SESSION"),
    } <= listed  # fmt: skip


def _commands(group, *before):
    """Yield every command that does something, with its words."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, *before, name)
        else:
            yield " ".join((*before, name)), command


def test_exit_code_table_lists_every_code(man):
    """The table lists the codes 0 to 7 and those of signals; every error's code is listed."""
    listed = {int(code) for code, _ in man.codes()}
    raised = {
        value.exit_code
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.BrainsurgeonError)
    }

    assert raised <= listed
    assert listed == {*range(8), 129, 130, 143}


def test_reference_has_every_configuration_key(man):
    """Keys, defaults and descriptions are those of the models (else run deploy/man.py)."""
    assert man.KEYS.search(man.CONFIGURATION.read_text())[2] == man.keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(TOP)))
def test_links_of_a_page_resolve(page):
    """Each linked file exists, with the linked heading."""
    for target in re.findall(r"\]\((.*?)\)", page.read_text()):
        name, _, heading = target.partition("#")
        path = page.parent / name if name else page
        assert path.exists(), target
        assert not heading or heading in _headings(path), target


@pytest.mark.parametrize(
    ("schema", "names"), [("forms", ("agent", "fault")), ("config", ("config",))]
)  # fmt: skip
def test_linters_accept_the_issue_forms(schema, names):
    """The linters of YAML and of its schemas report nothing."""
    forms = [TOP / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml" for name in names]
    rules = "{extends: default, rules: {document-start: disable, line-length: {max: 100}}}"
    for words in (
        ("yamllint", "--strict", "-d", rules),
        ("check-jsonschema", "--builtin-schema", f"vendor.github-issue-{schema}"),
    ):
        process = subprocess.run(
            [Path(sys.executable).parent / words[0], *words[1:], *forms],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert process.returncode == 0, process.stdout + process.stderr


def _headings(path):
    titles = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_commands_on_the_pages_are_valid():
    """Every `brainsurgeon` command line on a page parses with its options."""
    commands = [
        line for page in PAGES
        for line in re.findall(r"(?m)^\$ (brainsurgeon .*)$|`(brainsurgeon [a-z][^`]*)`",
                               re.sub(r"(?s)```text.*?```", "", page.read_text()))
    ]  # fmt: skip
    commands = [command or other for command, other in commands]
    assert len(commands) > 60
    group = typer.main.get_command(application())
    for line in commands:
        for part in line.split("#")[0].split(" | ")[0].split("&&"):
            _, *words = shlex.split(part)
            context = group.make_context("brainsurgeon", words, resilient_parsing=True)
            rest = [*context._protected_args, *context.args]
            subcommand = group.commands[rest[0]]
            subcommand.make_context(rest[0], rest[1:], resilient_parsing=False)
