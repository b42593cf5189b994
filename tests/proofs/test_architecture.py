"""The picture of the house, kept true by reading the imports of every module."""

import ast
import graphlib
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import brainsurgeon

HOUSE = Path(brainsurgeon.__file__).parent
# Every module, named from the package downwards, and its file.
MODULES = {
    ".".join(path.relative_to(HOUSE).with_suffix("").parts)
    .removesuffix("__init__")
    .strip("."): path
    for path in sorted(HOUSE.rglob("*.py"))
}


NOUNS = ("model.*", "errors")
PURE = (*NOUNS, "formats", "formats.*", "planning.*")
HANDS = ("hosts.*", "sessions.*", "store", "store.*")
SURFACES = ("api", "cli", "daemon", "mcp_server")
AT_THE_DOOR = (
    "", *NOUNS, "operations.*", "lookup.*", "rewrite.budget", "rewrite.recover", "rewrite.turns",
    "config", "render", "render.*", "log", "store", "store.database",
)  # fmt: skip

# Room to what it may import beside itself: `room.*` any module of it, `room` only its door.
MAY_IMPORT = {
    "": (),
    "__main__": ("cli",),
    "model": (),
    "errors": (),
    "formats": NOUNS,
    "planning": (*NOUNS, "formats", "formats.*"),
    "hosts": NOUNS,
    "sessions": (*NOUNS, "formats", "formats.*", "hosts.*"),
    "store": (*NOUNS, "formats"),
    # It builds their values, so that no room has to know what a setting is called.
    "config": (*NOUNS, "formats", "hosts.home_paths"),
    "schedule": ("config", "config.values"),
    "lookup": (*PURE, *HANDS, "config"),
    "rewrite": (*PURE, *HANDS, "lookup.*", "config"),
    "operations": (*PURE, *HANDS, "", "lookup.*", "rewrite", "rewrite.*", "config", "schedule"),
    "log": (*NOUNS, "config", "operations.*"),
    "render": (*NOUNS, "", "config.origins"),
    **dict.fromkeys(SURFACES, AT_THE_DOOR),
    # `run` and `mcp` are commands like any other: the others are started from here.
    "cli": (
        *AT_THE_DOOR,
        "config.*",
        "daemon",
        "mcp_server",
        "sessions.discovery",
        "sessions.row_listing",
    ),
    # A change below a root wakes it up only where the name is one of a session.
    "daemon": (*AT_THE_DOOR, "hosts.*", "schedule"),
}


LOOKS_AROUND = {
    "os", "io", "pathlib", "shutil", "tempfile", "glob", "time", "logging", "structlog", "random",
    "secrets", "socket", "subprocess", "threading", "asyncio", "sqlite3", "sqlite_utils",
}  # fmt: skip
PURE_ROOMS = ("model", "errors", "formats", "planning")
# They ask OpenClaw's own databases, read-only; `sessions.row_writing` changes rows in one.
SPEAKS_TO_SQLITE = {
    "hosts.openclaw_database", "hosts.openclaw_gate",
    *(f"sessions.row_{what}" for what in ("listing", "writing")),
    "hosts.openclaw", "hosts.sqlite", "sessions.placeholders",
}  # fmt: skip


# The modules that may change what stands in a session's directory, and who may call them.
KNIFE = {
    "sessions.attributes": {"sessions.exchange", "sessions.reading"},
    "sessions.exchange": {"operations.doctor", "rewrite.apply", "rewrite.recover"},
    "sessions.retire": {"rewrite.apply", "rewrite.recover", "sessions.exchange"},
    "sessions.row_writing": {"rewrite.apply", "rewrite.recover"},
}  # fmt: skip
# What they open for writing lies in our own state directory, is a stream that went away, a file
# that `init` was told to write where none was, or a backup, a page or figures asked for.
OF_OUR_OWN = {
    *(f"store.{name}" for name in ("backup", "database", "history", "salvage")),
    "store",
    "log",
    "cli.options",
    "operations.init",
}
# Calls that change a directory or a file; `leases.exchange` is `renameat2`.
MOVES_FILES = {
    *(f"os.{name}" for name in ("rename", "renames", "replace", "link", "symlink", "unlink",
                                "remove", "rmdir", "truncate", "ftruncate", "sendfile",
                                "copy_file_range", "write", "pwrite", "writev", "pwritev",
                                "utime", "chmod", "fchmod", "chown", "fchown", "setxattr")),
    "leases.exchange", "shutil.move", "shutil.copy", "shutil.copyfile", "shutil.rmtree",
}  # fmt: skip
TO_WRITE = {
    "os.O_WRONLY", "os.O_RDWR", "os.O_CREAT", "os.O_TRUNC", "os.O_APPEND", "os.O_TMPFILE",
}  # fmt: skip


SAYS_NOTHING = {"util", "utils", "helper", "helpers", "misc", "common", "manager", "core", "stuff"}


def room(module):
    return module.partition(".")[0]


@cache
def tree(module):
    return ast.parse(MODULES[module].read_text())


@cache
def ours(module):
    return set(_imported(module))


def _imported(module):
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            names = [f"{node.module}.{name.name}" for name in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = [f"brainsurgeon.{node.value.id}.{node.attr}"]  # imported at its first use
            if node.value.id not in ("operations", "render") or names[0][13:] not in MODULES:
                continue
        else:
            continue
        for name in names:
            if room(name) == "brainsurgeon":
                inner = name.partition(".")[2]
                yield inner if inner in MODULES else inner.rpartition(".")[0]


def foreign(module):
    """Name the top-level packages of others that a module imports, wherever in it."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from (room(name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield room(node.module)


def allowed(module, target):
    if room(module) == room(target):
        return True
    doors = MAY_IMPORT[room(module)]
    return target in doors or f"{room(target)}.*" in doors


def attributes(module):
    return {ast.unparse(node) for node in ast.walk(tree(module)) if isinstance(node, ast.Attribute)}


def opened_to_write(module):
    """Name the calls of `open` in a module whose mode is not one for reading."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("open", "os.fdopen"):
            given = [*node.args[1:2], *(one.value for one in node.keywords if one.arg == "mode")]
            if any(
                not isinstance(one, ast.Constant) or set("wax+") & {*one.value} for one in given
            ):
                yield ast.unparse(node)


def called(module):
    return {ast.unparse(node.func) for node in ast.walk(tree(module)) if isinstance(node, ast.Call)}


def test_every_room_has_its_place_in_the_picture():
    """A module outside the picture is named, so that nobody adds a room without a place."""
    rooms = {room(module) for module in MODULES}

    assert rooms - MAY_IMPORT.keys() == set()


def test_a_room_imports_only_what_the_picture_allows():
    """No module imports from a room that the picture does not connect with its own."""
    strangers = {
        f"{module} imports {target}"
        for module in MODULES
        for target in ours(module)
        if not allowed(module, target)
    }

    assert strangers == set()


def test_no_modules_import_each_other_in_a_circle():
    """Imports run one way, also those inside of functions."""
    graph = {module: ours(module) - {module} for module in MODULES}
    assert list(graphlib.TopologicalSorter(graph).static_order())


def test_a_class_name_means_one_class():
    """No two modules define a class of the same name."""
    names = Counter(
        node.name
        for module in MODULES
        for node in ast.walk(tree(module))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, number in names.items() if number > 1] == []


def test_the_picture_is_read_from_the_real_imports():
    """The reader of imports sees the ones inside functions and under TYPE_CHECKING too."""
    cli = {target for module in MODULES if room(module) == "cli" for target in ours(module)}

    assert {"operations.show", "operations.scan", "store", "config"} <= cli
    assert "planning.signatures" in set(ours("planning.plan"))
    assert not allowed("formats.base", "planning.rules")
    assert not allowed("cli", "store.extractions")
    assert not allowed("operations.scan", "render")


def test_the_pure_half_looks_at_nothing():
    """No disk, no clock, no chance and no logger in the nouns, the formats and the decisions."""
    looks = {
        f"{module}: {name}"
        for module in MODULES
        if room(module) in PURE_ROOMS
        for name in (set(foreign(module)) & LOOKS_AROUND)
        | (called(module) & {"open", "print", "input", "datetime.now", "datetime.utcnow"})
    }

    assert looks == set()


def test_the_planner_is_in_the_pure_half():
    """What decides about a session's bytes stands where nothing may look around."""
    names = ("plan", "matching", "rules", "drafts", "retention")
    assert {f"planning.{name}" for name in names} <= MODULES.keys()


def test_only_the_store_speaks_to_sqlite():
    """SQLite is imported in the store's room, and in the one place that says why."""
    speaks = {
        module for module in MODULES if {"sqlite3", "sqlite_utils"} & set(foreign(module))
    } - SPEAKS_TO_SQLITE

    assert {module for module in speaks if room(module) != "store"} == set()


def test_the_connection_stays_inside_the_store():
    """No other room reaches for the store's connection: it takes values and gives values."""
    reaches = {
        module
        for module in MODULES
        if room(module) != "store"
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Attribute) and node.attr in ("connection", "_connection")
    }

    assert reaches == set()


def test_only_the_knife_changes_what_stands_beside_a_session():
    """Nothing else may rename, exchange, remove or write in a session's directory."""
    assert {
        f"{module}: {call}"
        for module in MODULES
        if module not in KNIFE and module not in OF_OUR_OWN
        for call in called(module) & MOVES_FILES
    } == set()


def test_only_the_knife_opens_for_writing():
    """No other module opens a file to write, by flags or by mode."""
    assert {
        f"{module}: {way}"
        for module in MODULES
        if module not in KNIFE and module not in OF_OUR_OWN
        for way in (*(attributes(module) & TO_WRITE), *opened_to_write(module))
    } == set()


def test_the_knife_is_held_by_few():
    """Each module of the knife is called by those that are named here, and by nobody else."""
    for knife, holders in KNIFE.items():
        assert {module for module in MODULES if knife in ours(module)} <= holders, knife


def test_the_guard_of_the_knife_sees_what_it_looks_for():
    """The exchange, the removal and the writing that the knife does do are seen by the guard."""
    assert "leases.exchange" in called("sessions.exchange")
    assert "os.unlink" in called("sessions.retire")
    assert "os.O_RDWR" in attributes("sessions.exchange")


def test_names_say_what_a_thing_is():
    """No module, class or function is called utils, helper, manager or the like."""
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
            if SAYS_NOTHING & set(name.strip("_").lower().split("_"))
            or name.endswith(("Manager", "Helper", "Utils"))
        }

    assert vague == set()


def test_the_command_line_starts_without_the_heavy_packages():
    """What an agent calls often does not wait for packages that only other commands need."""
    heavy = {"apscheduler", "mcp", "prometheus_client", "sqlite_utils", "structlog", "watchfiles"}
    code = (
        "import sys, brainsurgeon.cli, brainsurgeon.operations.show, "
        "brainsurgeon.operations.restore\n"
        f"print(*sorted({heavy!r} & sys.modules.keys()))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []
