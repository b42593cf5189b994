"""The picture of the house, kept true by reading the imports of every module."""

import ast
import subprocess
import sys
from pathlib import Path

import brainsurgeon

HOUSE = Path(brainsurgeon.__file__).parent
MODULES = {
    ".".join(path.relative_to(HOUSE).with_suffix("").parts)
    .removesuffix("__init__")
    .strip("."): path
    for path in sorted(HOUSE.rglob("*.py"))
}
"""Every module, named from the package downwards, and its file."""

NOUNS = ("model", "errors")
SURFACES = ("api", "cli", "daemon", "mcp_server")
AT_THE_DOOR = (
    "", *NOUNS, "operations.*", "config", "render", "render.*", "log", "store", "store.opening",
)  # fmt: skip

MAY_IMPORT = {
    "": (),
    "__main__": ("cli",),
    "model": (),
    "errors": (),
    "formats": NOUNS,
    "decide": NOUNS,
    "sessions": NOUNS,
    "store": NOUNS,
    # It builds their values, so that no room has to know what a setting is called.
    "config": (*NOUNS, "decide.cron", "decide.rules", "formats", "sessions.discover"),
    "operations": (*NOUNS, "formats.*", "decide.*", "sessions.*", "store.*", "config"),
    "log": (*NOUNS, "config", "operations.*"),
    "render": (*NOUNS, "operations.*"),
    **dict.fromkeys(SURFACES, AT_THE_DOOR),
    # `run` and `mcp` are commands like any other: the others are started from here.
    "cli": (*AT_THE_DOOR, "daemon", "mcp_server"),
    # A change below a root wakes it up only where the name is one of a session.
    "daemon": (*AT_THE_DOOR, "sessions.discover"),
}
"""Room to what it may import beside itself: `room.*` any module of it, `room` only its door."""

LOOKS_AROUND = {
    "os", "io", "pathlib", "shutil", "tempfile", "glob", "time", "logging", "structlog", "random",
    "secrets", "socket", "subprocess", "threading", "asyncio", "sqlite3", "sqlite_utils",
}  # fmt: skip
SPEAKS_TO_SQLITE = {"store", "sessions.quiet", "operations.operate"}
"""`sessions.quiet` asks OpenClaw's own database, read-only; `operate` names the type."""

KNIVES = {
    "sessions.replacing": {"operations.operate"},
    "sessions.filling": {"operations.operate", "sessions.replacing"},
    "sessions.settling": {
        "operations.operate",
        "operations.recover",
        "sessions.filling",
        "sessions.replacing",
    },
}
"""The modules that may change a session file, and who may call them."""
MAY_MOVE_FILES = {"sessions", "store", "operations.check"}
"""`operations.check` takes away the file that it made to try a lease on."""
MOVES_FILES = {
    f"os.{name}" for name in ("rename", "replace", "link", "unlink", "remove", "truncate",
                              "ftruncate", "sendfile", "copy_file_range")
}  # fmt: skip

LONGEST = 300
LONGER = {
    "formats.openclaw": "one dialect, its tree and its redactions included, stands together",
    "operations.plan": "one planner: every edit of a line is decided in one place",
}
LONGEST_OF_ALL = 450

SAYS_NOTHING = {"util", "utils", "helper", "helpers", "misc", "common", "manager", "core", "stuff"}


def room(module):
    """Give the room that a module belongs to."""
    return module.partition(".")[0]


def tree(module):
    """Parse a module."""
    return ast.parse(MODULES[module].read_text())


def ours(module):
    """Name the modules of ours that a module imports, wherever in it."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            names = [f"{node.module}.{name.name}" for name in node.names]
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
    """Tell whether a module may import another."""
    if room(module) == room(target):
        return True
    doors = MAY_IMPORT[room(module)]
    return target in doors or f"{room(target)}.*" in doors


def called(module):
    """Name everything that a module calls."""
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


def test_the_picture_is_read_from_the_real_imports():
    """The reader of imports sees the ones inside functions and under TYPE_CHECKING too."""
    cli = {target for module in MODULES if room(module) == "cli" for target in ours(module)}

    assert {"operations.show", "operations.scan", "store", "config"} <= cli
    assert "decide.rules" in set(ours("decide.extract"))
    assert not allowed("formats.base", "decide.rules")
    assert not allowed("cli", "store.blobs")
    assert not allowed("operations.scan", "render")


def test_the_pure_half_looks_at_nothing():
    """No disk, no clock, no chance and no logger in the nouns, the formats and the decisions."""
    looks = {
        f"{module}: {name}"
        for module in MODULES
        if room(module) in ("formats", "decide", "model", "errors")
        for name in (set(foreign(module)) & LOOKS_AROUND)
        | (called(module) & {"open", "print", "input", "datetime.now", "datetime.utcnow"})
    }

    assert looks == set()


def test_only_the_store_speaks_to_sqlite():
    """SQLite is imported in the store's room, and in the two places that say why."""
    speaks = {
        module for module in MODULES if {"sqlite3", "sqlite_utils"} & set(foreign(module))
    } - SPEAKS_TO_SQLITE

    assert {module for module in speaks if room(module) != "store"} == set()


def test_one_operation_holds_the_knife():
    """What changes a session file is called by `operate`, and after a crash by `recover`."""
    for knife, holders in KNIVES.items():
        assert {module for module in MODULES if knife in ours(module)} <= holders
    assert {
        f"{module}: {call}"
        for module in MODULES
        if not {module, room(module)} & MAY_MOVE_FILES
        for call in called(module) & MOVES_FILES
    } == set()


def test_no_module_is_too_long_to_be_read_in_one_go():
    """A module has at most 300 lines, unless it is named here with the reason."""
    lengths = {module: len(path.read_text().splitlines()) for module, path in MODULES.items()}

    assert {
        module: length
        for module, length in lengths.items()
        if length > (LONGEST_OF_ALL if module in LONGER else LONGEST)
    } == {}


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
