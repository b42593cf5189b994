"""Architecture: which room may import which, and which modules may write, read from the source."""

import ast
import graphlib
import re
import subprocess
import sys
from collections import Counter
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import brainsurgeon
from brainsurgeon.agents import AGENTS, INSTALLS
from brainsurgeon.agents.described import DESCRIBED_AGENT
from brainsurgeon.formats.base import Format

PACKAGE = Path(brainsurgeon.__file__).parent
# The file of each module, by its dotted name inside the package.
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    .removesuffix("__init__")
    .strip("."): path
    for path in sorted(PACKAGE.rglob("*.py"))
}

MODEL = ("model.*", "errors")
PURE = (*MODEL, "formats.*", "planning.*")
OUTER = ("agents", "agents.*", "files.*", "interruption", "sessions.*", "store", "store.*")
SURFACES = ("api", "cli", "daemon", "mcp_server")
SURFACE_IMPORTS = (
    "", *MODEL, "interruption", "operations.*", "lookup.*", "rewrite.relief", "rewrite.recover",
    "rewrite.archived_turns", "config", "render", "render.*", "log", "store", "store.database",
)  # fmt: skip

# What each room may import beside itself: `room.*` is any module of a room, `room` its __init__.
MAY_IMPORT = {
    "": (),
    "__main__": ("cli",),
    "model": (),
    "errors": (),
    "interruption": ("errors",),
    "formats": MODEL,
    "planning": (*MODEL, "formats.*"),
    "files": (*MODEL, "interruption", "formats.*"),
    "agents": (*MODEL, "files.*", "formats.*", "planning.*"),
    "sessions": (*MODEL, "interruption", "formats.*", "files.*", "agents", "agents.*"),
    "store": (*MODEL, "interruption"),
    # It builds values of other rooms from settings, so that these rooms know no settings.
    "config": (*MODEL, "files.configurations", "agents"),
    "schedule": ("config", "config.values"),
    "lookup": (*PURE, *OUTER, "config"),
    "rewrite": (*PURE, *OUTER, "lookup.*", "config"),
    "operations": (*PURE, *OUTER, "", "lookup.*", "rewrite", "rewrite.*", "config", "schedule"),
    "log": (*MODEL, "config", "operations.*"),
    "render": (*MODEL, ""),
    **dict.fromkeys(SURFACES, SURFACE_IMPORTS),
    # The commands `run` and `mcp` start the other surfaces.
    "cli": (
        *SURFACE_IMPORTS, "agents", "config.*", "daemon", "mcp_server", "sessions.discovery",
        "sessions.row_listing",
    ),
    # `agents` decides which file names below a root are sessions and wake the daemon.
    "daemon": (*SURFACE_IMPORTS, "agents", "files.*", "schedule"),
}  # fmt: skip

IMPURE_PACKAGES = {
    "os", "io", "pathlib", "shutil", "tempfile", "glob", "time", "logging", "structlog", "random",
    "secrets", "socket", "subprocess", "threading", "asyncio", "sqlite3", "sqlite_utils",
}  # fmt: skip
PURE_ROOMS = ("model", "errors", "formats", "planning")
# The formats of the agents are as pure as what they share.
AGENT_FORMATS = {name for name in MODULES if fnmatch(name, "agents.*.format")}
# They read databases of agents. `OpenRows.change` calls what changes rows, in a transaction.
SQLITE_MODULES = {
    *(f"agents.openclaw.{name}" for name in ("database", "gate", "home", "rows")),
    "agents.codex.offsets", "agents.opencode.rows",
    "agents.rows", "files.sqlite", "files.transactions",
}  # fmt: skip

# The beginning of a statement of SQL that changes a database.
SQL_CHANGE = re.compile(r"\s*(INSERT|UPDATE|DELETE|REPLACE|CREATE|DROP|ALTER|BEGIN)\b")

# The modules that may change files in a session's directory, and their permitted callers.
SESSION_WRITERS = {
    "files.attributes": {"files.exchange", "files.reading", "agents.codex.offsets"},
    "files.exchange": {
        "operations.doctor", "rewrite.apply", "rewrite.recover", "agents.codex.offsets",
    },
    "files.retire": {
        "rewrite.apply", "rewrite.recover", "files.exchange", "agents.codex.offsets",
    },
    "files.transactions": {"agents.rows", "agents.codex.offsets"},
    "agents.codex.locks": {"agents.codex.presence"},
    "agents.codex.offsets": {"agents.codex.presence"},
}  # fmt: skip
# They write in the state directory, to a closed stream, or a new file that the user asked for:
# by `init`, or a backup, a page or figures.
OWN_FILE_WRITERS = {
    *(f"store.{name}" for name in ("backup", "database", "runs", "salvage")),
    "store", "log", "cli.options", "operations.init",
}  # fmt: skip
# Calls that change a file or directory; `leases.exchange` is `renameat2`.
FILE_CHANGES = {
    *(f"os.{name}" for name in ("rename", "renames", "replace", "link", "symlink", "unlink",
                                "remove", "rmdir", "truncate", "ftruncate", "sendfile",
                                "copy_file_range", "write", "pwrite", "writev", "pwritev",
                                "utime", "chmod", "fchmod", "chown", "fchown", "setxattr",
                                "removexattr")),
    "leases.exchange", "shutil.move", "shutil.copy", "shutil.copyfile", "shutil.rmtree",
}  # fmt: skip
WRITE_FLAGS = {
    "os.O_WRONLY", "os.O_RDWR", "os.O_CREAT", "os.O_TRUNC", "os.O_APPEND", "os.O_TMPFILE",
}  # fmt: skip

# Modules with tables of the names of models.
NAMES_OF_MODELS = {
    "model.providers", "model.rules", "formats.base", "planning.signatures",
}  # fmt: skip

VAGUE_NAMES = {"util", "utils", "helper", "helpers", "misc", "common", "manager", "core", "stuff"}


def room(module):
    return module.partition(".")[0]


@cache
def tree(module):
    return ast.parse(MODULES[module].read_text())


@cache
def imports(module):
    return set(_imported(module))


def _imported(module):
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            names = [f"{node.module}.{name.name}" for name in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = [f"brainsurgeon.{node.value.id}.{node.attr}"]  # imported on first use
            if node.value.id not in ("operations", "render") or names[0][13:] not in MODULES:
                continue
        else:
            continue
        for name in names:
            if room(name) == "brainsurgeon":
                inner = name.partition(".")[2]
                yield inner if inner in MODULES else inner.rpartition(".")[0]


def other_packages(module):
    """Yield the top-level name of each package that a module imports anywhere."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from (room(name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield room(node.module)


def may_import(module, target):
    if room(module) == room(target):
        return True
    doors = MAY_IMPORT[room(module)]
    return target in doors or f"{room(target)}.*" in doors


def attributes(module):
    return {ast.unparse(node) for node in ast.walk(tree(module)) if isinstance(node, ast.Attribute)}


def opened_to_write(module):
    """Yield the calls of `open` whose mode is not certain to be one for reading."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("open", "os.fdopen"):
            modes = [*node.args[1:2], *(word.value for word in node.keywords if word.arg == "mode")]
            if any(
                not isinstance(mode, ast.Constant) or set("wax+") & {*mode.value} for mode in modes
            ):
                yield ast.unparse(node)


def called(module):
    return {ast.unparse(node.func) for node in ast.walk(tree(module)) if isinstance(node, ast.Call)}


def test_every_room_has_an_import_rule():
    """A new room fails until MAY_IMPORT says what it may import."""
    assert {room(module) for module in MODULES} - MAY_IMPORT.keys() == set()


def test_modules_import_only_what_their_room_may_import():
    """MAY_IMPORT permits each import of another room."""
    assert {
        f"{module} imports {target}"
        for module in MODULES
        for target in imports(module)
        if not may_import(module, target)
    } == set()


def test_a_format_of_an_agent_imports_only_model_and_formats():
    """It knows neither its agent nor other agents."""
    assert {
        f"{module} imports {target}"
        for module in AGENT_FORMATS
        for target in imports(module)
        if room(target) not in ("model", "formats")
    } == set()
    assert {type(agent.form).__module__.partition(".")[2] for agent in AGENTS} == AGENT_FORMATS


def test_imports_have_no_cycle():
    """Imports inside functions count as well."""
    graph = {module: imports(module) - {module} for module in MODULES}
    assert list(graphlib.TopologicalSorter(graph).static_order())


def test_class_names_are_unique():
    """No two modules define a class of the same name."""
    names = Counter(
        node.name
        for module in MODULES
        for node in ast.walk(tree(module))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, number in names.items() if number > 1] == []


def test_import_reader_and_rules_detect_violations():
    """Imports inside functions and on first use are seen, and known violations are refused."""
    cli = {target for module in MODULES if room(module) == "cli" for target in imports(module)}

    assert {"operations.show", "operations.scan", "store", "config"} <= cli
    assert "planning.decisions" in imports("planning.plan")
    assert not may_import("formats.base", "planning.rules")
    assert not may_import("cli", "store.extractions")
    assert not may_import("operations.scan", "render")


def test_pure_rooms_use_no_disk_clock_randomness_or_logger():
    """They and the agents' formats import no such package and call no such function."""
    calls = {"open", "print", "input", "datetime.now", "datetime.utcnow"}
    assert {
        f"{module}: {name}"
        for module in MODULES
        if room(module) in PURE_ROOMS or module in AGENT_FORMATS
        for name in (set(other_packages(module)) & IMPURE_PACKAGES) | (called(module) & calls)
    } == set()


def test_planning_modules_are_in_a_pure_room():
    """The planner, matching, rules, drafts and retention lie in planning."""
    names = ("plan", "matching", "rules", "drafts", "retention")
    assert {f"planning.{name}" for name in names} <= MODULES.keys()


def test_only_the_store_and_readers_of_agent_databases_import_sqlite():
    """SQLITE_MODULES lists the only modules outside the store's room."""
    assert {
        module
        for module in MODULES
        if room(module) != "store" and {"sqlite3", "sqlite_utils"} & set(other_packages(module))
    } <= SQLITE_MODULES


def changes_a_database(node):
    return any(
        isinstance(inner, ast.Constant)
        and isinstance(inner.value, str)
        and SQL_CHANGE.match(inner.value)
        for inner in ast.walk(node)
    )


def functions_that_write(module):
    """Return the names of functions that have, or use, a statement that changes a database."""
    constants = {
        ast.unparse(target)
        for node in tree(module).body
        if isinstance(node, ast.Assign) and changes_a_database(node)
        for target in node.targets
    }
    return {
        node.name
        for node in ast.walk(tree(module))
        if isinstance(node, ast.FunctionDef)
        and (
            changes_a_database(node)
            or constants & {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
        )
    }


def test_databases_of_agents_are_changed_in_one_function_each():
    """It is `write` in the module `rows` of an agent, or in that of the offsets of Codex.

    One function calls it in a transaction.
    """
    writers = {
        module: functions_that_write(module) for module in MODULES
        if room(module) != "store" and changes_a_database(tree(module))
    }  # fmt: skip

    assert writers.pop("files.transactions") == {"transaction"}
    assert "agents.openclaw.rows" in writers
    others = {module for module in writers if not fnmatch(module, "agents.*.rows")}
    assert others == {"agents.codex.offsets"}
    assert all(functions == {"write"} for functions in writers.values())
    assert [name for name in MODULES if "transactions.transaction" in called(name)] == [
        "agents.codex.offsets", "agents.rows",
    ]  # fmt: skip


def test_no_other_room_uses_the_store_connection():
    """Only values go in and out of the store."""
    assert {
        module
        for module in MODULES
        if room(module) != "store"
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Attribute) and node.attr in ("connection", "_connection")
    } == set()


def words(module):
    """Yield the identifiers of a module, and its literals without spaces: others are texts."""
    for node in ast.walk(tree(module)):
        for name in ("id", "attr", "arg", "name", "asname", "module", "value"):
            word = getattr(node, name, None)
            if isinstance(word, str | bytes) and not re.search(r"\s", word := str(word)):
                yield word


def agents_named(module):
    """Return the words of a module that contain the name of an agent."""
    names = {re.sub("[^a-z]", "", name.lower()) for agent in AGENTS
             for name in (agent.format, agent.prefix)} - {"", DESCRIBED_AGENT.format}  # fmt: skip
    names |= INSTALLS.keys()
    short = {name for name in names if len(name) < 4}  # they may be parts of words
    return {
        word for word in words(module)
        if short & set(re.split("[^a-z]", word.lower()))
        or any(name in re.sub("[^a-z]", "", word.lower()) for name in names - short)
    }  # fmt: skip


def test_agents_are_named_only_in_their_folders():
    """Other modules ask the registry; only tables of models contain such names."""
    naming = {
        module for module in MODULES
        if room(module) != "agents" and agents_named(module)
    }  # fmt: skip

    assert naming == NAMES_OF_MODELS


def test_only_the_listed_modules_change_files():
    """No other module renames, exchanges, removes, changes or opens a file for writing."""
    assert {
        f"{module}: {change}"
        for module in MODULES
        if module not in SESSION_WRITERS and module not in OWN_FILE_WRITERS
        for change in (
            *(called(module) & FILE_CHANGES),
            *(attributes(module) & WRITE_FLAGS),
            *opened_to_write(module),
        )
    } == set()


def test_session_writers_have_only_the_listed_callers():
    """SESSION_WRITERS lists every module that imports one of them."""
    for writer, callers in SESSION_WRITERS.items():
        assert {module for module in MODULES if writer in imports(module)} <= callers, writer


def test_file_changes_of_session_writers_are_detected():
    """The exchange, the removal and the opening for writing are seen in their modules."""
    assert "leases.exchange" in called("files.exchange")
    assert "os.unlink" in called("files.retire")
    assert "os.O_RDWR" in attributes("files.exchange")


def test_a_format_has_at_most_eight_methods_and_is_read_in_few_places():
    """A new format needs no others, and the rest of the program asks transcripts."""
    known = {name for name in vars(Format) if callable(getattr(Format, name)) and name[0] != "_"}
    forms = [
        form
        for agent in AGENTS
        for form in (agent.form, agent.databases and agent.databases.form)
        if form
    ]
    others = {
        f"{form.name}: {name}" for form in forms for name in dir(form)
        if callable(getattr(form, name)) and name[0] != "_" and name not in known
    }  # fmt: skip

    assert len(known) <= 8, known
    assert not others
    assert sum("entries_of" in called(module) for module in MODULES) <= 4


def test_no_module_class_or_function_has_a_vague_name():
    """None is called utils, helper, manager or the like."""
    vague = set()
    for module in MODULES:
        names = [module.rpartition(".")[2]] + [
            node.name
            for node in ast.walk(tree(module))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        ]
        vague |= {
            f"{module}: {name}"
            for name in names
            if VAGUE_NAMES & set(name.strip("_").lower().split("_"))
            or name.endswith(("Manager", "Helper", "Utils"))
        }

    assert vague == set()


def test_cli_starts_without_heavy_packages():
    """`show` and `restore`, which agents call often, import no package of other commands."""
    heavy = {"apscheduler", "mcp", "prometheus_client", "sqlite_utils", "structlog", "watchfiles"}
    code = (
        "import sys, brainsurgeon.cli, brainsurgeon.operations.show, "
        "brainsurgeon.operations.restore\n"
        f"print(*sorted({heavy!r} & sys.modules.keys()))"
    )

    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert process.stdout.split() == []
