"""What each key of a configuration says: the words of the README's table, and of the schema.

The key of a table within a table stands behind a dot, as `config` prints it.
"""

from __future__ import annotations

SAID = {
    "enabled": "the master switch; with `false` a scan looks and changes nothing",
    "keep_recent": "recent messages that stay whole",
    "min_value_length": "characters; longer values go",
    "trigger_types": (
        "kinds that may go, of `thinking`, `tool_call`, `tool_result`, `assistant`, "
        "`user`, `system`, `custom`"
    ),
    "rules": (
        "the long form of `trigger_types`: `[[rules]]` with `kind`, `tool` (globs), "
        "`min_value_length`, `keep_recent`"
    ),
    "dead_kinds": "kinds that may go from what no request carries any more; empty: as elsewhere",
    "sealed": (
        'signed thinking that a cut would break leaves with it; `"defer"` leaves the session alone'
    ),
    "sealed_models": "globs of more models that sign so; with `!` of those that do not",
    "exclude": "what to leave alone: globs of paths, `agent:<id>`, `session:<id>`, `tool:<name>`",
    "min_session_bytes": "smaller sessions are left alone",
    "min_reclaim": (
        'a rewrite that frees less is not made: a share of the file, or bytes (`"64KB"`)'
    ),
    "quiet_seconds": "how long a session must have been unchanged",
    "abandoned_after_seconds": "after how much silence an open turn counts as abandoned",
    "keep_after_restore_seconds": "how long a restored value is safe from being cut again",
    "keep_purge_control_calls": "keep the agent's own restore calls whole",
    "scan_interval_seconds": "seconds between the passes of the daemon",
    "auto_cron": 'a schedule instead, as for cron (`"*/2 * * * *"`)',
    "watch": "look soon after a change, too",
    "retention": "how long a value is kept whose stub stands in no session any more",
    "retention_standing": (
        "how long one is kept whose stub stands, without any activity in its session"
    ),
    "retention_cron": "when the daemon lets go of what expired",
    "databases": (
        'OpenClaw\'s databases: `"engines"` includes those with another context engine, '
        '`"off"` leaves all alone'
    ),
    "roots": (
        "`[[roots]]` with `path`, `format` (`auto`, `openclaw`, `claude-code`, `generic`,"
        " `codex`), `exclusive`"
    ),
    "budget.enabled": "a scan relieves what is too full",
    "budget.max_step": "how far it may go",
    "budget.threshold": (
        "from which share of the window on a session is too full, for models of no known tier"
    ),
    "budget.threshold_by_tier": "the same for `frontier`, `mid`, `small`",
    "budget.max_messages": "what stands further back loses its values; 0: off",
    "windows": "tokens that models take, by globs of their ids",
    "tiers": "tiers of models, by parts of their ids",
    "profiles": "`[profiles.NAME]`: settings for some sessions",
    "use": "`[[use]]` with `sessions` (globs) and `profile`: which have which",
    "archive.enabled": "finished turns fold into their last answers",
    "archive.token_threshold": "a turn of more tokens folds",
    "archive.tool_call_threshold": "one of as many calls does, too",
    "archive.on_failed": "and one that was cut short",
    "archive.keep_turns": "the newest turns, which never fold",
    "archive.depth_cap": "how often what folded may fold again",
    "archive.fold_after": "so many in a row become one",
    "archive.style": "how a summary is written: `structured` (JSON) or `paragraph`",
    "archive.summary_chars": "characters of the outcome that a summary quotes",
    "archive.command": "a program of yours that summarises instead",
    "archive.command_timeout": "how long it may take",
    "state_dir": "where the store and its locks live",
    "log_level": "`debug`, `info`, `warning`, `error`",
    "log_format": "`console`, `json`; auto: console on a terminal",
    "metrics_file": "where figures for Prometheus go after each pass",
    "archive": "which finished turns fold into their last answers, and what is said of them there",
    "budget": "how full a session may be before a scan relieves it",
    "roots.path": "the directory; `~` is your home",
    "roots.format": (
        "how its files are written; `auto` tells by their first lines, `codex` is only read"
    ),
    "roots.exclusive": "your word that nobody else writes there, where leases prove nothing",
    "rules.kind": "the kind of values that it is about",
    "rules.tool": "globs of tools that it is about; none: every tool",
    "rules.min_value_length": "characters; longer values go; else the number for all",
    "rules.keep_recent": "recent messages that stay whole; else the number for all",
    "use.sessions": (
        "globs of `agent/name`, or `key:` and globs of the key that an agent gives a session"
    ),
    "use.profile": "the profile, of yours or built in",
}
"""What it is about, by its key."""
