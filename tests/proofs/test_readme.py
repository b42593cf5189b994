"""The README, the reference, the agents' pages and the man page say what the program says."""

import importlib.util
import re
import shlex

import pytest
import typer

from brainsurgeon import errors
from brainsurgeon.cli.commands import application
from building.world import TOP

README = TOP / "README.md"
PAGES = [README, *sorted((TOP / "deploy").glob("*/*.md"))]


def script(name):
    spec = importlib.util.spec_from_file_location(name, TOP / "deploy" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def man():
    return script("man")


def test_the_readme_is_short():
    """It has at most 1,800 words; the reference lies below deploy/docs, and is linked."""
    text = README.read_text()

    assert len(text.split()) <= 1_800
    pages = (TOP / "deploy" / "docs").glob("*.md")
    assert all(f"(deploy/docs/{page.name}" in text for page in pages)


def test_the_picture_shows_what_a_run_does_to_a_real_session():
    """Bars and figures are those of the program today; else run deploy/picture.py."""
    drawn = script("picture")

    assert drawn.PICTURE.read_text() == drawn.picture()


def test_the_help_in_the_reference_is_the_help_of_the_program(man):
    """`--help` of the program and of each command are in it; else run deploy/man.py."""
    page = man.COMMANDS.read_text()

    assert man.HELP.search(page)[2] == man.said()
    assert man.EACH.search(page)[2] == man.each()


def test_the_man_page_is_the_help_of_the_program(man):
    """Every command with its options stands in it, word for word; else run deploy/man.py."""
    assert man.PAGE.read_text() == man.page()


def test_every_exit_code_of_the_errors_stands_in_the_table(man):
    """The reference explains every exit code that an error of ours can lead to."""
    listed = {int(code) for code, _ in man.codes()}
    raised = {
        value.exit_code
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.BrainsurgeonError)
    }

    assert raised <= listed
    assert listed == set(range(8))


def test_the_table_of_keys_is_that_of_the_models(man):
    """Every key stands in it with its default and description; else run deploy/man.py."""
    assert man.KEYS.search(man.CONFIGURATION.read_text())[2] == man.keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(TOP)))
def test_every_link_leads_somewhere(page):
    """Each file that a page links to is there, and each heading in it."""
    for target in re.findall(r"\]\((.*?)\)", page.read_text()):
        name, _, heading = target.partition("#")
        path = page.parent / name if name else page
        assert path.exists(), target
        assert not heading or heading in _headings(path), target


def _headings(path):
    titles = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_what_is_typed_is_what_the_program_takes():
    """Each command of ours on a page, block or not, is one, with its options."""
    typed = [
        line for page in PAGES
        for line in re.findall(r"(?m)^\$ (brainsurgeon .*)$|`(brainsurgeon [a-z][^`]*)`",
                               re.sub(r"(?s)```text.*?```", "", page.read_text()))
    ]  # fmt: skip
    typed = [one or other for one, other in typed]
    assert len(typed) > 60
    group = typer.main.get_command(application())
    for line in typed:
        for one in line.split("#")[0].split(" | ")[0].split("&&"):
            _, *words = shlex.split(one)
            context = group.make_context("brainsurgeon", words, resilient_parsing=True)
            rest = [*context._protected_args, *context.args]
            command = group.commands[rest[0]]
            command.make_context(rest[0], rest[1:], resilient_parsing=False)
