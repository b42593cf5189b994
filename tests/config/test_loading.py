"""The configuration: every key, every kind of mistake, and every place it is read from."""

import json
import os
import re
import tomllib

import pytest

from brainsurgeon import agents
from brainsurgeon.agents import FORMATS
from brainsurgeon.config import config_path, load, loading
from brainsurgeon.config.settings import (
    REMOVED,
    ArchiveTable,
    BudgetTable,
    PriceTable,
    ProfileTable,
    RootTable,
    RuleTable,
    Settings,
    SignalTable,
    UseTable,
)
from brainsurgeon.errors import ConfigError
from brainsurgeon.model.rules import Rule
from brainsurgeon.model.session_files import Root
from building.machine import SYSTEM_CONFIG
from building.world import TOP

EXAMPLE = TOP / "config.toml.example"
LOG = """{recognise = [{kind = "*"}], texts = "said", entries = [
  {role = "prompt", when = {kind = "q"}}, {role = "reply", when = {kind = "a"}}]}"""
DAY = 86_400


@pytest.fixture
def loaded(tmp_path):
    """Load a configuration. Formats that it describes are known until the test ends."""

    def build(text):
        path = tmp_path / "config.toml"
        path.write_text(text)
        settings, warnings = load(str(path))
        assert warnings == []
        return settings

    yield build
    agents.learn([])


@pytest.fixture
def problems(tmp_path):
    def build(text=""):
        path = tmp_path / "config.toml"
        path.write_text(text)
        with pytest.raises(ConfigError) as caught:
            load(str(path))
        assert caught.value.exit_code == 2
        assert caught.value.facts() == {"problems": list(caught.value.problems)}
        assert all(problem in str(caught.value) for problem in caught.value.problems)
        return list(caught.value.problems)

    return build


def test_an_empty_configuration_has_the_defaults(loaded, own_home):
    """An empty file, or none, has every default, with the state below the home directory."""
    assert loaded("").model_dump() == {
        "budget": {"enabled": False, "max_step": 3, "threshold": None, "max_messages": 0},
        "archive": {
            "enabled": False, "token_threshold": 8000, "tool_call_threshold": 5, "keep_turns": 2,
            "command": (),
        },
        "signals": {
            "repeat_threshold": 5, "max_turn_cost_usd": None, "max_session_cost_usd": None,
            "stop_prompts": False, "off": (), "on_signal": (),
        },
        "windows": {}, "request_bytes": {}, "tiers": {}, "prices": {}, "formats": {},
        "profiles": {}, "profile": None, "use": (),
        "enabled": True, "roots": (), "databases": "auto", "exclude": (),
        "keep_recent": 3, "superseded": False, "min_value_length": 500,
        "trigger_types": ("thinking", "tool_result"), "rules": (),
        "signed_models": (), "when": "pays", "min_reclaim": 0.01,
        "quiet": 30, "abandoned_after": 3600, "keep_after_restore": 600,
        "keep_purge_control_calls": False, "scan_interval": 30, "auto_cron": None, "watch": True,
        "retention": DAY, "retention_missing": 30 * DAY, "retention_standing": None,
        "retention_cron": "0 */6 * * *",
        "state_dir": f"{own_home}/.local/state/brainsurgeon",
        "log_level": "info",
    }  # fmt: skip
    assert load()[0] == loaded("")


# Every key: what it takes and what it refuses.

WHOLE_NUMBERS = ("keep_recent", "min_value_length")
WAITS = ("keep_after_restore", "quiet", "abandoned_after")
SWITCHES = ("enabled", "keep_purge_control_calls", "superseded", "watch")
DURATIONS = ("retention", "retention_missing", "retention_standing")
KINDS = ["thinking", "tool_call", "tool_result", "assistant", "user", "system", "custom"]


GOOD = [
    *((key, text, number) for key in WHOLE_NUMBERS for text, number in (("0", 0), ("17", 17))),
    *(
        (key, text, seconds) for key in WAITS
        for text, seconds in (('"0s"', 0), ('"10m"', 600), ("0", 0), ("17", 17))
    ),
    *((key, text, text == "true") for key in SWITCHES for text in ("true", "false")),
    *(
        (key, f'"{text}"', seconds)
        for key in DURATIONS
        for text, seconds in (
            ("90s", 90), ("15m", 900), ("24h", DAY), ("30d", 30 * DAY), ("2w", 14 * DAY),
            ("never", None),
        )
    ),
    ("scan_interval", '"1s"', 1),
    ("trigger_types", json.dumps(KINDS), tuple(KINDS)),
    ("trigger_types", "[]", ()),
    ("signed_models", '["house-*", "!claude-fable-*"]', ("house-*", "!claude-fable-*")),
    ("archive", "{}", ArchiveTable()),
    (
        "archive",
        '{enabled = true, keep_turns = 0, command = ["a", "b"]}',
        ArchiveTable(enabled=True, keep_turns=0, command=["a", "b"]),
    ),
    ("exclude", '["*/secret/*", "agent:main", "tool:exec"]', ("*/secret/*", "agent:main",
                                                              "tool:exec")),
    *(
        ("request_bytes", f'{{"*" = {text}}}', {"*": size})
        for text, size in (
            ("0", 0), ("65536", 65_536), ('"65536"', 65_536), ('"64KB"', 64_000),
            ('"64 KB"', 64_000), ('"64kb"', 64_000), ('"2MB"', 2_000_000), ('"1GB"', 10**9),
            ('"7B"', 7),
        )
    ),
    *(
        ("min_reclaim", text, value)
        for text, value in (
            ('"1%"', 0.01), ('"0.5%"', 0.005), ('"0%"', 0.0), ('"2 %"', 0.02), ('"64KB"', 64_000),
            ("0", 0), ("1", 1), ("64000", 64_000),
        )
    ),
    ("auto_cron", '"*/2 * * * *"', "*/2 * * * *"),
    ("retention_cron", '"15 3 * * mon"', "15 3 * * mon"),
    ("state_dir", '"/var/lib/brainsurgeon/"', "/var/lib/brainsurgeon"),
    *(("log_level", f'"{level}"', level) for level in ("debug", "info", "warning", "error")),
    *(("databases", f'"{which}"', which) for which in ("auto", "engines", "off")),
    ("roots", '[{path = "/a"}]', (RootTable(path="/a", format="auto"),)),
    *(
        ("roots", f'[{{path = "/a/../b/", format = "{form}"}}]',
         (RootTable(path="/b", format=form),))
        for form in ("auto", "openclaw", "claude-code", "codex", "generic")
    ),
    ("formats", f"{{mine = {LOG}}}", {"mine": tomllib.loads(f"x = {LOG}")["x"]}),
    ("rules", '[{kind = "tool_result"}]', (RuleTable(kind="tool_result"),)),
    ("rules", '[{kind = "tool_call", tool = "read*", min_value_length = 0, keep_recent = 9}]',
     (RuleTable(kind="tool_call", tool=("read*",), min_value_length=0, keep_recent=9),)),
    ("rules", '[{kind = "user", tool = ["a", "b*"]}]', (RuleTable(kind="user", tool=("a", "b*")),)),
    ("signals", '{repeat_threshold = 0, on_signal = ["mail", "me"]}',
     SignalTable(repeat_threshold=0, on_signal=("mail", "me"))),
    ("signals", '{off = ["pressure"], stop_prompts = true}',
     SignalTable(off=("pressure",), stop_prompts=True)),
    ("signals", "{max_turn_cost_usd = 2.5, max_session_cost_usd = 40}",
     SignalTable(max_turn_cost_usd=2.5, max_session_cost_usd=40.0)),
    ("budget", "{enabled = true, max_step = 6, threshold = 1}",
     BudgetTable(enabled=True, max_step=6, threshold=1.0)),
    ("budget", "{threshold = {small = 0.3}, max_messages = 50}",
     BudgetTable(threshold={"small": 0.3}, max_messages=50)),
    ("windows", '{"house-*" = 32000}', {"house-*": 32_000}),
    ("request_bytes", '{"house-*" = "20MB"}', {"house-*": 20_000_000}),
    *(("when", f'"{when}"', when) for when in ("pays", "cold", "always")),
    ("prices", '{"house-*" = {input = 3, cache_read = 0.3, cache_write = 3.75, output = 15}}',
     {"house-*": PriceTable(input=3, cache_read=0.3, cache_write=3.75, output=15)}),
    ("tiers", '{"house-large" = "frontier"}', {"house-large": "frontier"}),
    ("profiles", "{night = {keep_recent = 1, budget = {threshold = 0.5}}}",
     {"night": ProfileTable(keep_recent=1, budget={"threshold": 0.5})}),
    ("use", '[{sessions = "main/*", profile = "debug"}]',
     (UseTable(sessions=("main/*",), profile="debug"),)),
    ("profile", '"lean"', "lean"),
    ("use", '[{sessions = ["key:agent:*:cron:*", "*"], profile = "ephemeral"}]',
     (UseTable(sessions=("key:agent:*:cron:*", "*"), profile="ephemeral"),)),
    ("use", '[{sessions = "/*", profile = "lean"}, {sessions = "key:*", profile = "lean"}]',
     tuple(UseTable(sessions=(glob,), profile="lean") for glob in ("/*", "key:*"))),
]  # fmt: skip


@pytest.mark.parametrize(("key", "text", "value"), GOOD)
def test_each_key_accepts_its_values(loaded, key, text, value):
    """Each accepted value of each key is parsed to the expected value of the expected type."""
    parsed = getattr(loaded(f"{key} = {text}"), key)

    assert parsed == value
    assert type(parsed) is type(value)


BAD = [
    *((key, text, f"{key}: ") for key in WHOLE_NUMBERS for text in ("-1", "1.0", '"3"', "[]")),
    *((key, "true", f"{key}: ") for key in WHOLE_NUMBERS),
    *((key, text, f"{key}: ") for key in SWITCHES for text in ("1", "0", '"true"', '"yes"', "[]")),
    *(
        (key, text, f"{key}: wants a whole number above 0 with s, m, h, d or w")
        for key in DURATIONS
        for text in (
            '"0h"', '"24"', "24", '"1.5h"', '"-1h"', '"1y"', '"1 h"', '"24H"', '""', "true",
        )
    ),
    *(
        ("scan_interval", text, 'scan_interval: wants from "1s" to "365d", but ')
        for text in ("0", '"0s"', "31536001", '"366d"')
    ),
    *(
        (key, text, f'{key}: wants seconds (90), or "90s" (units s, m, h, d, w), at most 100 years')
        for key in (*WAITS, "scan_interval")
        for text in ("-1", "1.5", "true", "99999999999", '"never"', '"1.5h"', '"99999999w"', "[]")
    ),
    *((key, '"99999999w"', f"{key}: wants at most 100 years") for key in DURATIONS),
    ("trigger_types", '["thoughts"]', "trigger_types[0]: "),
    ("trigger_types", '["user", "tool"]', "trigger_types[1]: "),
    ("trigger_types", '"thinking"', "trigger_types: "),
    ("exclude", '"tool:exec"', "exclude: "),
    ("exclude", "[1]", "exclude[0]: "),
    ("exclude", '["/a", "agnt:main"]',
     ("exclude[1]: wants a glob of absolute paths, agent:<id>, session:<id> or tool:<name>, but "
      '"agnt:main" is given; did you mean agent:main? (line 1)')),
    ("exclude", '["secrets"]', "exclude[0]: wants a glob of absolute paths"),
    ("exclude", '["agent:"]', "exclude[0]: wants a glob of absolute paths"),
    ("exclude", r'["/a\u0000"]', "exclude[0]: wants a glob of absolute paths"),
    ("when", '"warm"', "when: "),
    ("when", "true", "when: "),
    *(
        ("signals", f"{{{key} = {text}}}", f"signals.{key}: wants dollars, above 0, but {text}")
        for key in ("max_turn_cost_usd", "max_session_cost_usd")
        for text in ("0", "-1", "true")
    ),
    *(
        ("prices", f'{{"*" = {{{text}}}}}', f"prices.*.{key}: ")
        for key, text in (
            ("cache_write", "input = 3, cache_read = 1, cache_write = 0, output = 9"),
            ("cache_read", 'input = 3, cache_read = "0.3", cache_write = 1, output = 9'),
            ("cache_write", "input = 3, cache_read = 0.3, output = 9"),
            ("output", "input = 3, cache_read = 0.3, cache_write = 3"),
        )
    ),
    ("prices",
     '{"*" = {input = 3, cache_read = 0.3, cache_write = 3, output = 9, cache_reads = 9}}',
     "prices.*.cache_reads: no such key; did you mean cache_read?"),
    *(
        ("archive", f"{{{key} = {text}}}", f"archive.{key}: ")
        for key, text in (
            ("enabled", "1"), ("token_threshold", "-1"), ("tool_call_threshold", "1.5"),
            ("keep_turns", "true"), ("command", '"summarise --short"'), ("thresholds", "1"),
        )
    ),
    ("archive", "{command = [1]}", "archive.command[0]: wants a word"),
    ("archive", "true", "archive: wants a table"),
    ("signed_models", "[7]", "signed_models[0]: wants a name, or a glob of names"),
    *(
        ("request_bytes", f'{{"*" = {text}}}', "request_bytes.*: wants bytes")
        for text in ("-1", "1.5", '"1%"', '"64TB"', '"1.5MB"', '"-1KB"', '""', "true")
    ),
    *(
        ("min_reclaim", text, 'min_reclaim: wants a percentage ("1%") or bytes')
        for text in ("-1", "0.01", '"-1%"', '"1.%"', '"%"', '"a lot"', "false")
    ),
    ("min_reclaim", '"150%"', 'min_reclaim: wants at most 100%, but "150%" is given'),
    *(
        (key, text, f"{key}: wants the five fields of cron")
        for key in ("auto_cron", "retention_cron")
        for text in ('"* * * *"', '"@daily"', '"* * * * * *"', '"0 25 * * *"', "5", '""')
    ),
    ("state_dir", '"relative/path"', "state_dir: wants an absolute path"),
    ("state_dir", '""', "state_dir: wants an absolute path"),
    ("state_dir", "7", "state_dir: wants an absolute path (~ is allowed), but 7 is given"),
    ("log_level", '"INFO"', "log_level: wants debug, info, warning or error, but"),
    ("log_level", '"trace"', "log_level: wants debug, info, warning or error, but"),
    ("databases", '"on"', "databases: wants auto, engines or off, but"),
    ("databases", "true", "databases: "),
    ("roots", '[{path = "/"}]', "roots[0].path: wants a directory of sessions"),
    ("roots", '[{path = "/a/b"}, {path = "/a/../a/b/", format = "generic"}]',
     'roots[1].path: wants another directory than roots[0], but "/a/../a/b/" is given with other'),
    ("roots", '["/a"]', 'roots[0]: wants a table, but "/a" is given'),
    ("roots", '"/a"', 'roots: wants a list, but "/a" is given'),
    ("roots", '[{path = "agents"}]', "roots[0].path: wants an absolute path"),
    ("roots", '[{path = "/a"}, {path = "./b"}]', "roots[1].path: wants an absolute path"),
    ("roots", '[{path = "~nobody-of-this-name/a"}]', "roots[0].path: wants an absolute path"),
    ("roots", "[{}]", "roots[0].path: is missing"),
    ("roots", '[{path = "/a", format = "pi-agent"}]', "roots[0].format: "),
    ("roots", '[{path = "/a", agent = "main"}]',
     "roots[0].agent: no such key; there are path, format"),
    ("formats", "[]", "formats: "),
    ("formats", "{mine = 1}", "formats.mine: "),
    ("rules", "[{}]", "rules[0].kind: "),
    ("rules", '[{kind = "thoughts"}]', "rules[0].kind: "),
    ("rules", '[{kind = "user", tool = 7}]', "rules[0].tool: "),
    ("rules", '[{kind = "user", tool = [7]}]', "rules[0].tool[0]: "),
    ("rules", '[{kind = "user", min_value_length = -1}]', "rules[0].min_value_length: "),
    ("rules", '[{kind = "user"}, {kind = "user", keep_recent = 1.5}]', "rules[1].keep_recent: "),
    ("rules", '[{kind = "user", min_length = 5}]', "rules[0].min_length: no such key"),
    ("signals", "{on_signal = 'mail'}", "signals.on_signal: wants a list of words"),
    ("budget", "3", "budget: wants a table, but 3 is given"),
    ("budget", "{max_step = 8}", "budget.max_step: wants a whole number from 0 to 7"),
    ("budget", "{threshold = 0}", "budget.threshold: wants a share of the window"),
    ("budget", "{threshold = 1.1}", "budget.threshold: wants a share of the window"),
    ("budget", "{threshold = {huge = 0.5}}", "budget.threshold: wants a share of the window"),
    ("budget", "{max_message = 5}", "budget.max_message: no such key; did you mean max_messages?"),
    ("windows", '{"house-*" = 0}', "windows.house-*: wants a whole number from 1"),
    ("request_bytes", '{"house-*" = "20 apples"}', "request_bytes.house-*: wants bytes, or"),
    ("tiers", '{"house-*" = "huge"}', "tiers.house-*: wants frontier, mid or small"),
    ("profiles", "{night = {keep_resent = 1}}",
     "profiles.night.keep_resent: no such key; did you mean keep_recent?"),
    ("profiles", '{night = {rules = [{kind = "user"}], trigger_types = ["user"]}}',
     "profiles.night: wants rules or trigger_types, but a table with both is given"),
    ("use", '[{sessions = "main/*", profile = "debugg"}]',
     'use[0].profile: wants a profile, but "debugg" is given; did you mean debug?'),
    ("profile", '"leam"', 'profile: wants a profile, but "leam" is given; did you mean lean?'),
    ("use", '[{sessions = [], profile = "debug"}]', "use[0].sessions: wants at least one glob"),
    ("use", '[{sessions = ["main"], profile = "debug"}]',
     "use[0].sessions[0]: wants a glob of agent/name"),
    ("use", '[{sessions = ["key:"], profile = "debug"}]', "use[0].sessions[0]: wants a glob of"),
    ("use", '[{sessions = "*", profile = "chat"}, {sessions = "a/b", profile = "debug"}]',
     'use[1].sessions: ["a/b"] is given, but it can never match: earlier globs ("*") cover it'),
    ("use", '[{sessions = "a/*", profile = "chat"}, {sessions = "a/b*", profile = "debug"}]',
     'use[1].sessions: ["a/b*"] is given, but it can never match: earlier globs ("a/*") cover it'),
    ("keep_resent", "3", "keep_resent: no such key; did you mean keep_recent?"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "text", "problem"), BAD)
def test_each_key_refuses_other_values(problems, key, text, problem):
    """A refused value is reported with its key and text, in words of the program."""
    (message,) = problems(f"{key} = {text}")

    assert message.startswith(problem)
    assert not re.search(r"[Ii]nput|tuple|Field|dictionary|instance|valid|extra", message)
    assert " is given" in message or "is missing" in message or "no such key" in message


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[formats.generic]\n", ("formats.generic: wants another name: this program has such a "
         "format (line 1)")),
        (('[formats.mine]\ntexts = "a"\n[[formats.mine.recognise]]\nx = "*"\n'
         '[[formats.mine.entries]]\nrole = "prompt"\n[[formats.mine.entries]]\nrole = "reply"\n'),
         "formats.mine.entries[1]: is never used: entries[0] fits whatever it fits (line 7)"),
        (('[formats.mine]\ntexts = "a..b"\nrecognise = [{x = 1}]\n'
         'entries = [{role = "prompt", when = {a = 1}}, {role = "reply"}]\n'),
         ("formats.mine.texts: 'a..b' is no path: it has names, `*` and `[key=value]`, with dots "
         "(line 2)")),
        (('[formats.mine]\ntexts = "a"\nrecognise = [{x = 1}]\nentries = [\n'
          '  { role = "prompt", when = { a = "{" } },  # {\n\n  { rolle = "reply" },\n]\n'),
         "formats.mine.entries[1].rolle: no such key; there are role, when, kind, closes (line 7)"),
        ('[formats.mine]\ntexts = "a"\nusage = { at = "a", read = "b" }\n',
         ("formats.mine.usage.read: no such key; there are at, prompt, input, cached, written, "
          "output (line 3)")),
    ],
)  # fmt: skip
def test_a_description_that_contradicts_itself_is_refused_with_its_line(problems, text, problem):
    """Nothing is run with it."""
    assert problems(text) == [problem]


def test_a_root_may_have_a_format_that_the_configuration_describes(loaded, problems):
    """The next configuration without the description does not know it."""
    root = '[[roots]]\npath = "/logs"\nformat = "ledger"\n'

    assert loaded(f"formats.ledger = {LOG}\n{root}").roots[0].format == "ledger"
    assert "ledger" in FORMATS
    assert "did you mean" not in problems(root)[0]
    loaded("keep_recent = 1\n")
    assert "ledger" not in FORMATS


def test_every_key_has_accepted_and_refused_values():
    """The two tables above cover every key."""
    keys = Settings.model_fields.keys()

    assert {key for key, *_ in GOOD} == keys
    assert {key for key, *_ in BAD} == {*keys, "keep_resent"}


def test_only_keys_of_a_table_are_suggested_for_it(problems):
    """In a table, a former name of a key is no key, so its present name is suggested, if any."""
    assert problems("quiet_second = 1\n") == [
        "quiet_second: no such key; did you mean quiet? (line 1)"
    ]
    assert problems("[profiles.night]\nkeep_recents = 3\n") == [
        "profiles.night.keep_recents: no such key; did you mean keep_recent? (line 2)"
    ]
    [problem] = problems("[budget]\nquiet_second = 1\n")
    assert "no such key; there are enabled, max_step, threshold, max_messages" in problem


def test_a_key_below_a_table_is_to_be_put_above_the_tables(problems):
    """The problem of a key that a table does not have says where this key has an effect."""
    [problem] = problems('[[roots]]\npath = "/a"\nkeep_recent = 5\n')

    assert problem == "roots[0].keep_recent: no such key; put it above the tables (line 3)"


def test_a_problem_names_the_line_of_its_key(problems):
    """In each table of a list, below a table with a quoted name, and for quoted keys."""
    messages = problems("""\
[[roots]]
path = "/a"

[[roots]]
path = "b"

[[rules]]
kind = "user"
[[rules]]
keep_recent = 3
kind = "thoughts"
[prices]
"a:b" = { input = 3, cache_read = 0.3, cache_write = 3, output = 9 }
"c.1" = { input = 3, cache_read = -1, cache_write = 3, output = 9 }
[profiles."my-own"]
when = "now"
[[profiles.other.rules]]
kind = "user"
[[profiles.other.rules]]
kind = "user"
tool = 7
""")

    lines = {message.partition(": ")[0]: message.split()[-1] for message in messages}
    assert lines == {
        "roots[1].path": "5)", "rules[1].kind": "11)", "prices.c.1.cache_read": "14)",
        "profiles.my-own.when": "16)", "profiles.other.rules[1].tool": "21)",
    }  # fmt: skip


def test_a_problem_hides_the_value_of_an_unknown_key(problems):
    """A long value is shown shortened; that of an unknown key is not, for it may be a secret."""
    messages = problems(f'log_level = "{"loud" * 50}"\napi_key = "hunter2"\n')

    assert len(messages) == 2
    assert "hunter2" not in "".join(messages)
    assert "loudloud" in "".join(messages)
    assert max(map(len, messages)) < 600


@pytest.mark.parametrize("place", ["/agents/main/state", "/agents", "/"])
def test_the_state_directory_may_not_overlap_a_root(problems, tmp_path, place):
    """A state directory inside a root, or around one, is refused."""
    (message,) = problems(
        f'state_dir = "{tmp_path}{place}"\nroots = [{{path = "{tmp_path}/agents"}}]'
    )

    assert message.startswith(
        "state_dir: wants a directory that neither is in a root nor contains one, "
    )
    assert f"{tmp_path}/agents" in message


def test_a_root_that_is_given_twice_counts_once(tmp_path):
    """Also by way of a link: that is only a warning."""
    (tmp_path / "agents").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "agents")
    config = tmp_path / "config.toml"
    config.write_text("".join(
        f'[[roots]]\npath = "{tmp_path}/{name}"\n' for name in ("agents", "link", "other")
    ))  # fmt: skip

    settings, warnings = load(str(config))

    assert [root.path for root in settings.roots] == [
        f"{tmp_path}/{n}" for n in ("agents", "other")
    ]
    assert warnings == ["roots[1].path: roots[0] is the same directory; it counts once"]


@pytest.mark.parametrize("key", ["last_run_at", "last_retention_run_at"])
def test_last_run_keys_are_ignored_with_a_warning(tmp_path, key):
    """Keys that the store now holds load with a warning and change nothing."""
    path = tmp_path / "config.toml"
    path.write_text(f'{key} = "2026-02-20T10:00:00Z"\nkeep_recent = 4\n')

    settings, notes = load(str(path))

    assert settings.keep_recent == 4
    assert notes == [
        f"{key}: ignored; the store keeps this time now, and `brainsurgeon status` shows it"
    ]


@pytest.mark.parametrize("text", ["keep_recent = ", "= 3", 'a = "', "[[roots]\n"])
def test_a_file_that_is_not_toml_is_one_problem(problems, text):
    """A file that does not parse is reported as not TOML."""
    (message,) = problems(text)

    assert message.startswith("not TOML: ")


def test_an_unreadable_file_is_reported(tmp_path):
    """A directory, a missing file and bytes that are not text each raise ConfigError."""
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    for path, reason in (
        (tmp_path, "cannot be read: Is a directory"),
        (tmp_path / "none.toml", "cannot be read: No such file or directory"),
        (binary, "not TOML"),
    ):
        with pytest.raises(ConfigError, match=reason):
            load(str(path))


# The environment.


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("KEEP_RECENT", "7", 7),
        ("ENABLED", "false", False),
        ("ENABLED", "True", True),
        ("WATCH", "0", False),
        ("WATCH", "yes", True),
        ("KEEP_PURGE_CONTROL_CALLS", "1", True),
        ("TRIGGER_TYPES", "thinking, tool_call,user", ("thinking", "tool_call", "user")),
        ("TRIGGER_TYPES", "", ()),
        ("EXCLUDE", "tool:exec,agent:main", ("tool:exec", "agent:main")),
        ("MIN_RECLAIM", "64KB", 64_000),
        ("MIN_RECLAIM", "64000", 64_000),
        ("MIN_RECLAIM", "5%", 0.05),
        ("RETENTION", "7d", 7 * DAY),
        ("RETENTION_STANDING", "never", None),
        ("AUTO_CRON", "*/2 * * * *", "*/2 * * * *"),
        ("STATE_DIR", "/var/lib/b", "/var/lib/b"),
        ("ROOTS", "/a, /b", (RootTable(path="/a"), RootTable(path="/b"))),
        ("ROOTS", '[{"path": "/a", "format": "codex"}]', (RootTable(path="/a", format="codex"),)),
        ("ROOTS", '{"path": "/a"}', (RootTable(path="/a"),)),
        ("RULES", '[{"kind": "user", "tool": "x*"}]', (RuleTable(kind="user", tool=("x*",)),)),
        ("RULES", '{"kind": "user"}', (RuleTable(kind="user"),)),
        ("BUDGET", '{"max_messages": 5}', BudgetTable(max_messages=5)),
        ("WINDOWS", '{"house-*": 32000}', {"house-*": 32_000}),
        ("TIERS", '{"house": "small"}', {"house": "small"}),
        ("PROFILES", '{"night": {"keep_recent": 1}}', {"night": ProfileTable(keep_recent=1)}),
        ("USE", '{"sessions": "a/*", "profile": "chat"}',
         (UseTable(sessions=("a/*",), profile="chat"),)),
    ],
)  # fmt: skip
def test_the_environment_overrides_the_file(loaded, monkeypatch, variable, text, value):
    """BRAINSURGEON_<KEY> replaces a key of the file; lists are words, tables are JSON."""
    monkeypatch.setenv(f"BRAINSURGEON_{variable}", text)
    file = "" if variable == "RULES" else 'trigger_types = ["system"]\n'

    settings = loaded(
        f'{file}keep_recent = 9\nexclude = ["*x"]\nretention = "1h"\nwatch = true\n'
        'roots = [{path = "/c"}]'
    )

    assert getattr(settings, variable.lower()) == value


@pytest.mark.parametrize(
    ("variable", "text", "problem"),
    [
        ("KEEP_RECENT", "three", ": wants a whole number from 0"),
        ("KEEP_RECENT", "-1", ": wants a whole number from 0"),
        ("ENABLED", "maybe", ": wants true or false"),
        ("RETENTION", "24", ": wants a whole number above 0"),
        ("TRIGGER_TYPES", "thinking,thoughts", "[1]: wants thinking, tool_call"),
        ("RULES", "tool_result", ": wants JSON"),
        ("RULES", '[{"kind": "thoughts"}]', "[0].kind: wants thinking, tool_call"),
        ("ROOTS", "agents", "[0].path: wants an absolute path"),
        ("ROOTS", '{"path": ', ": wants JSON"),
        ("STATE_DIR", "", ": wants an absolute path"),
        ("AUTO_CRON", "", ": wants the five fields of cron"),
        ("ARCHIVE", '{"enabled": 3}', ".enabled: wants true or false, but 3 is given"),
        ("BUDGET", '{"threshhold": 1}', ".threshhold: no such key; did you mean"),
    ],
)
def test_an_environment_problem_names_the_variable(problems, monkeypatch, variable, text, problem):
    """A bad variable is reported by its name, and a bad value of that key in the file is not."""
    monkeypatch.setenv(f"BRAINSURGEON_{variable}", text)

    (message,) = problems(f"{variable.lower()} = {{}}")

    assert message.startswith(f"BRAINSURGEON_{variable}{problem}")
    assert text in message or " is given" in message or "no such key" in message


def test_a_valid_variable_overrides_an_invalid_key(loaded, monkeypatch):
    """A key that a variable overrides is not checked in the file."""
    monkeypatch.setenv("BRAINSURGEON_KEEP_RECENT", "4")

    assert loaded("keep_recent = -1").keep_recent == 4


def test_environment_problems_need_no_file(monkeypatch):
    """Without a file, a bad variable is reported as a problem of the environment."""
    monkeypatch.setenv("BRAINSURGEON_WATCH", "maybe")

    with pytest.raises(ConfigError, match=r"^environment: 1 problem, nothing was run"):
        load()


def test_an_unknown_variable_is_a_warning(monkeypatch):
    """A BRAINSURGEON_ variable that is no setting gives a warning with a suggestion."""
    monkeypatch.setenv("BRAINSURGEON_KEEP_RESENT", "3")
    monkeypatch.setenv("BRAINSURGEON_", "3")
    monkeypatch.setenv("BRAIN_KEEP_RECENT", "x")

    settings, warnings = load()

    assert settings.keep_recent == 3
    assert [warning.split()[0] for warning in warnings] == [
        "BRAINSURGEON_", "BRAINSURGEON_KEEP_RESENT",
    ]  # fmt: skip
    assert warnings[1].endswith("did you mean BRAINSURGEON_KEEP_RECENT?")


# Another name.


def test_a_problem_of_an_alias_names_the_alias(problems):
    """A bad value under a former key name is reported under the name that the file uses."""
    (message,) = problems("keep_restore_calls = 1")

    assert message.startswith("keep_restore_calls: ")


# The places a configuration may come from.


def test_the_configuration_is_read_from_the_first_place(tmp_path, own_home, monkeypatch):
    """--config comes before $BRAINSURGEON_CONFIG, then $XDG_CONFIG_HOME, the home, and /etc."""
    assert SYSTEM_CONFIG == "/etc/brainsurgeon/config.toml"
    places = {}
    for rank, directory in enumerate(("given", "named", "xdg", "home", "machine"), 1):
        path = {
            "xdg": tmp_path / "xdg" / "brainsurgeon" / "config.toml",
            "home": own_home / ".config" / "brainsurgeon" / "config.toml",
        }.get(directory, tmp_path / f"{directory}.toml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"keep_recent = {rank}")
        places[directory] = str(path)

    monkeypatch.setattr(loading, "SYSTEM_CONFIG", places["machine"])
    assert load()[0].keep_recent == 4
    assert config_path(None) == places["home"]
    os.unlink(places["home"])
    assert load()[0].keep_recent == 5
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert load()[0].keep_recent == 3
    monkeypatch.setenv("BRAINSURGEON_CONFIG", places["named"])
    assert load()[0].keep_recent == 2
    assert load(places["given"])[0].keep_recent == 1


def test_a_named_file_must_exist(tmp_path, own_home, monkeypatch):
    """If $BRAINSURGEON_CONFIG names a missing file, no other file is read instead."""
    path = own_home / ".config" / "brainsurgeon" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text("keep_recent = 4")
    monkeypatch.setenv("BRAINSURGEON_CONFIG", str(tmp_path / "gone.toml"))

    with pytest.raises(ConfigError, match="cannot be read"):
        load()


@pytest.mark.parametrize("linked", ["brainsurgeon/config.toml", "brainsurgeon"])
def test_a_configuration_that_is_a_dangling_link_is_an_error(own_home, linked):
    """The defaults are not used instead of a linked file that is missing: it may exclude agents."""
    path = own_home / ".config" / linked
    path.parent.mkdir(parents=True)
    path.symlink_to(own_home / "dotfiles" / linked)

    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load()


def test_the_state_directory_follows_xdg_state_home(loaded, own_home, monkeypatch):
    """`state_dir` defaults to $XDG_STATE_HOME/brainsurgeon, and ~ in it is the home."""
    assert loaded('state_dir = "~/state"').state_dir == f"{own_home}/state"
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert loaded("").state_dir == "/var/state/brainsurgeon"


# What the rooms get of it.


def test_the_default_root_is_openclaws_agents(loaded, own_home, monkeypatch):
    """Without roots, the agents below $OPENCLAW_STATE_DIR are read, and may be missing."""
    assert loaded("").root_directories() == [
        Root(f"{own_home}/.openclaw/agents", "auto", required=False)
    ]
    for configured, expected in (
        ("/srv/claw", "/srv/claw"),
        ("~/claw", f"{own_home}/claw"),
        ("  ", f"{own_home}/.openclaw"),
    ):
        monkeypatch.setenv("OPENCLAW_STATE_DIR", configured)
        assert loaded("").root_directories() == [Root(f"{expected}/agents", "auto", required=False)]


def make_pipe(path):
    os.mkfifo(path)


def make_large(path):
    path.write_bytes(b"#" * 1_000_001)


UNREADABLE = {"pipe": make_pipe, "link to a device": lambda path: path.symlink_to("/dev/zero"),
              "large": make_large}  # fmt: skip


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_pipe_device_or_large_file_is_no_configuration(tmp_path, kind):
    """More than 1 MB, a pipe and a device are refused at once, by every reader of the file."""
    path = tmp_path / "config.toml"
    UNREADABLE[kind](path)
    why = "larger than 1 MB" if kind == "large" else "not a regular file"
    for read in (load, lambda name: loading.settings_shown(Settings(), name)):
        with pytest.raises(ConfigError) as error:
            read(str(path))
        assert error.value.problems == (f"cannot be read: {why}",)


def test_a_configuration_of_one_megabyte_is_read(tmp_path):
    """Up to 1 MB, also with the line ends of Windows."""
    path = tmp_path / "config.toml"
    text = b"keep_recent = 7\r\n"
    path.write_bytes(text + b"#" * (1_000_000 - len(text)))

    assert load(str(path))[0].keep_recent == 7


def test_configured_roots_replace_the_default_and_must_exist(loaded, own_home, monkeypatch):
    """Only the configured roots are read, and they are required."""
    monkeypatch.setenv("OPENCLAW_STATE_DIR", "/srv/claw")
    settings = loaded('[[roots]]\npath = "~/a"\n[[roots]]\npath = "/b"\nformat = "generic"\n')

    assert settings.root_directories() == [
        Root(f"{own_home}/a", "auto", required=True), Root("/b", "generic", required=True),
    ]  # fmt: skip


def test_each_trigger_type_becomes_one_rule(loaded):
    """Without `[[rules]]`, each trigger type is a rule with the top-level numbers."""
    rules = loaded('trigger_types = ["user", "thinking"]\nkeep_recent = 5').decision_rules()

    assert rules.rules == (Rule("user", (), 500, 5), Rule("thinking", (), 500, 5))
    assert (rules.keep_recent, rules.enabled, rules.keep_after_restore) == (5, True, 600.0)


def test_rules_inherit_missing_numbers(loaded):
    """A rule keeps its own numbers, 0 included; missing ones come from the top level."""
    rules = loaded("""
keep_recent = 5
min_value_length = 700
enabled = false
keep_after_restore_seconds = 30
exclude = ["tool:exec", "agent:main", "*/x/*", "tool:web_*"]
min_reclaim = "64KB"
[[rules]]
kind = "tool_result"
tool = "read*"
min_value_length = 0
[[rules]]
kind = "tool_result"
keep_recent = 0
""").decision_rules()

    assert rules.rules == (
        Rule("tool_result", ("read*",), 0, 5), Rule("tool_result", (), 700, 0),
    )  # fmt: skip
    assert rules.exclude_tools == ("exec", "web_*")
    assert (rules.enabled, rules.keep_after_restore) == (False, 30.0)
    assert rules.min_reclaim == 64_000


def test_rules_and_trigger_types_exclude_each_other(problems, loaded, monkeypatch):
    """Rules beside trigger types are a problem, in one file or across file and environment."""
    rules = '[[rules]]\nkind = "user"\n'

    assert problems(f'trigger_types = ["thinking", "tool_result"]\n{rules}') == [
        "rules and trigger_types: give one of the two"
    ]
    assert loaded(rules).trigger_types == ("thinking", "tool_result")
    assert loaded('rules = []\ntrigger_types = ["user"]').trigger_types == ("user",)
    monkeypatch.setenv("BRAINSURGEON_TRIGGER_TYPES", "user")
    assert problems(rules) == ["rules and trigger_types: give one of the two"]


@pytest.mark.parametrize(
    "text",
    ["keep_recent = 4", "min_value_length = 1", "enabled = false", 'trigger_types = ["user"]',
     '[[rules]]\nkind = "user"', 'exclude = ["agent:main"]',
     'min_reclaim = "2%"', "keep_after_restore_seconds = 1", "[budget]\nenabled = true",
     "[budget]\nmax_messages = 50", '[windows]\n"house-*" = 32000', '[request_bytes]\n"*" = 0',
     '[tiers]\nhouse = "mid"',
     '[[use]]\nsessions = "main/*"\nprofile = "debug"', "[profiles.night]\nkeep_recent = 1",
     '[[roots]]\npath = "/x"\nformat = "generic"'],
)  # fmt: skip
def test_settings_that_decide_change_the_fingerprint(loaded, text):
    """A setting that changes decisions changes the fingerprint, so that sessions are read again."""
    assert loaded(text).rules_fingerprint() != loaded("").rules_fingerprint()


@pytest.mark.parametrize(
    "text",
    ["", 'log_level = "debug"', "watch = false", 'retention = "1h"', 'state_dir = "/x"',
     'min_reclaim = "1%"', "keep_recent = 3", 'trigger_types = ["thinking", "tool_result"]',
     '[[roots]]\npath = "/x"\nformat = "auto"'],
)  # fmt: skip
def test_other_settings_keep_the_fingerprint(loaded, text):
    """Settings without effect on decisions, and written defaults, keep the fingerprint."""
    assert loaded(text).rules_fingerprint() == loaded("").rules_fingerprint()


# Profiles.


def test_profile_of_a_session_is_that_of_its_first_use(loaded):
    """The first `[[use]]` entry that matches by agent/name or key applies, else `profile`."""
    settings = loaded(
        '[[use]]\nsessions = ["main/0*", "key:agent:*:cron:*"]\nprofile = "ephemeral"\n'
        '[[use]]\nsessions = "main/*"\nprofile = "chat"\n'
    )

    assert settings.profile_of(["main/0f3c"], []) == "ephemeral"
    assert settings.profile_of(["main/1f3c"], []) == "chat"
    assert settings.profile_of(["other/1"], ["agent:other:cron:daily"]) == "ephemeral"
    assert settings.profile_of(["other/1"], ["agent:other:main"]) is None
    assert settings.profile_of(["key:agent:a:cron:b"], []) is None
    lean = loaded('profile = "lean"\n[[use]]\nsessions = "main/*"\nprofile = "chat"\n')
    assert lean.profile_of(["main/1f3c"], []) == "chat"
    assert lean.profile_of(["other/1"], []) == "lean"
    none = loaded('profile = ""\n[[use]]\nsessions = "main/*"\nprofile = "chat"\n')
    assert none.profile_of(["other/1"], []) is None


def test_a_profile_changes_only_the_keys_it_sets(loaded):
    """Keys that a profile leaves out come from the top level, which itself does not change."""
    settings = loaded(
        "keep_recent = 7\nmin_value_length = 900\n"
        '[[rules]]\nkind = "user"\n'
        '[budget]\nenabled = true\nmax_step = 2\n[windows]\n"a*" = 1000\n"b*" = 2000\n'
        '[profiles.night]\nkeep_recent = 1\ntrigger_types = ["tool_result"]\n'
        '[profiles.night.budget]\nmax_messages = 9\n[profiles.night.windows]\n"b*" = 3000\n'
    )
    night = settings.under("night")

    assert (night.keep_recent, night.min_value_length) == (1, 900)
    assert [rule.kind for rule in night.decision_rules().rules] == ["tool_result"]
    assert night.budget == BudgetTable(enabled=True, max_step=2, max_messages=9)
    assert list(night.windows.items()) == [("b*", 3000), ("a*", 1000)]
    assert night.decision_rules().max_messages == 9
    assert settings.under(None) is settings
    assert settings.keep_recent == 7
    assert settings.rules_fingerprint() != night.rules_fingerprint()


def test_built_in_profiles_have_the_documented_values(loaded):
    """Five set a threshold, ephemeral keeps 50 messages, lean extracts more and sooner."""
    settings = loaded("")
    names = ("debug", "implement", "chat", "research", "review")
    thresholds = [settings.under(name).budget_rules().threshold_of(None) for name in names]

    assert thresholds == [0.65, 0.70, 0.85, 0.65, 0.75]
    assert settings.under("ephemeral").decision_rules().max_messages == 50
    assert settings.under("ephemeral").archive_rules().enabled
    assert not settings.archive_rules().enabled
    assert settings.decision_rules().max_messages == 0
    lean = settings.under("lean").decision_rules()
    assert (lean.keep_recent, lean.shortest, lean.superseded) == (1, 150, True)


@pytest.mark.parametrize(
    ("text", "profile", "model", "threshold"),
    [
        ("", None, "claude-opus-4-5", 0.85),
        ("", None, "claude-sonnet-4-5", 0.65),
        ("", None, "claude-haiku-4-5", 0.35),
        ("", None, "house-1", 0.75),
        ("", "chat", "claude-haiku-4-5", 0.35),
        ("", "chat", "house-1", 0.85),
        ("", "implement", "claude-opus-4-5", 0.70),
        ("[budget.threshold]\nsmall = 0.9", "chat", "claude-haiku-4-5", 0.9),
        ("[budget]\nthreshold = 0.5", None, "house-1", 0.5),
        ("[budget]\nthreshold = 0.5", None, "claude-opus-4-5", 0.5),
        ("[budget]\nthreshold = 0.5", "debug", "house-1", 0.5),
        ("[budget.threshold]\nsmall = 0.2", "debug", "claude-haiku-4-5", 0.2),
        ("[budget.threshold]\nsmall = 0.2", "debug", "claude-opus-4-5", 0.65),
        ('[tiers]\nhouse = "small"', None, "house-1", 0.35),
        ("[profiles.debug.budget]\nthreshold = 0.1", "debug", "house-1", 0.1),
    ],
)
def test_threshold_of_the_user_precedes_profile_and_tier(loaded, text, profile, model, threshold):
    """Without a threshold set by the user, the lower one of profile and tier applies."""
    budget = loaded(text).under(profile).budget_rules()

    assert budget.threshold_of(budget.tier(model)) == threshold


def test_settings_are_frozen(loaded):
    """Assigning to a loaded setting raises ValueError."""
    settings = loaded("")

    with pytest.raises(ValueError, match="frozen"):
        settings.keep_recent = 5


# The example file.


def test_the_example_file_has_the_defaults():
    """The example loads without warnings, and each value in it is the default."""
    settings, warnings = load(str(EXAMPLE))
    example = tomllib.loads(EXAMPLE.read_text())

    assert warnings == []
    assert example.keys() <= Settings.model_fields.keys()
    assert len(example) >= 8
    assert settings == load()[0]


def test_a_removed_key_is_refused_with_what_applies_without_it(problems):
    """The message about a key that was removed says so, and what applies now."""
    for key, now in REMOVED.items():
        assert problems(f"{key} = 1") == [f"{key}: no such key; it was removed: {now} (line 1)"]


def test_a_variable_of_a_removed_key_is_a_warning(monkeypatch):
    """No other variable is suggested, although a name may resemble it."""
    for key in REMOVED:
        monkeypatch.setenv(f"BRAINSURGEON_{key.upper()}", "1")

    assert load()[1] == [
        f"BRAINSURGEON_{key.upper()} is no setting of this program: ignored; it was removed: {now}"
        for key, now in sorted(REMOVED.items())
    ]


def test_the_example_file_names_at_most_30_keys():
    """At most 30 known keys appear in it, in use or commented out."""
    keys = re.findall(r"(?m)^(?:# )?(\w+) = ", EXAMPLE.read_text())
    known = {
        *Settings.model_fields, *RootTable.model_fields, *RuleTable.model_fields,
        *ArchiveTable.model_fields, *BudgetTable.model_fields,
    }  # fmt: skip

    assert known >= set(keys)
    assert len(keys) <= 30


def test_former_key_names_are_accepted(loaded, monkeypatch):
    """Former key names, in seconds, work in a file and in the environment."""
    monkeypatch.setenv("BRAINSURGEON_ABANDONED_AFTER_SECONDS", "90")
    monkeypatch.setenv("BRAINSURGEON_KEEP_RESTORE_CALLS", "false")
    assert not loaded("keep_restore_calls = true").keep_purge_control_calls
    monkeypatch.delenv("BRAINSURGEON_KEEP_RESTORE_CALLS")
    settings = loaded("""
scan_interval_seconds = 60
auto_cron = "*/2 * * * *"
retention_cron = "0 3 * * *"
keep_restore_calls = true
keep_after_restore_seconds = 1200
quiet_seconds = 45
""")

    assert (settings.scan_interval, settings.quiet, settings.abandoned_after) == (60, 45, 90)
    assert (settings.auto_cron, settings.retention_cron) == ("*/2 * * * *", "0 3 * * *")
    assert settings.keep_purge_control_calls
    assert settings.keep_after_restore == 1200


def test_commented_examples_of_the_example_file_are_valid(tmp_path):
    """With every commented line in use, the example file loads with the values shown."""
    text = re.sub(r"^# (?=\[|\w+ = |\"[^\"]+\" = )", "", EXAMPLE.read_text(), flags=re.MULTILINE)
    path = tmp_path / "config.toml"
    text = text.replace("[archive]\nenabled = false", "[archive]\nenabled = true")
    path.write_text(re.sub(r"^trigger_types = .*$", "", text, flags=re.MULTILINE))

    settings, _ = load(str(path))
    defaults = load()[0].model_dump(exclude={
        "rules", "roots", "trigger_types", "archive", "budget", "signals", "request_bytes",
    })  # fmt: skip

    assert settings.rules
    assert settings.roots
    assert settings.archive.command == ("/usr/local/bin/summarise", "--short")
    assert (settings.signals.max_turn_cost_usd, settings.signals.on_signal) == (5, ("logger",))
    assert settings.request_bytes == {"gemini-*": 20_000_000}
    assert defaults.items() <= settings.model_dump().items()
    assert os.path.isabs(settings.roots[0].path)


def test_a_refused_configuration_leaves_the_formats_known(loaded, problems):
    """A daemon goes on with its former settings, so it still recognises their logs."""
    loaded(f"formats.mine = {LOG}\n")

    assert problems(f"keep_recnt = 1\nformats.other = {LOG}\n")
    assert "mine" in FORMATS
    assert "other" not in FORMATS
