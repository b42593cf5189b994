"""What tests see of the machine they run on: as little as they can do with.

The environment of tests has the variables named here and no others. Their PATH lacks the commands
that the program looks for. Processes of pytest-xdist inherit both, before they start Python.
"""

import atexit
import json
import os
import pwd
import shutil
import tempfile
import time
from contextlib import suppress

from brainsurgeon.config import loading

# A test that needs one of these makes it.
HIDDEN = (
    "brainsurgeon", "claude", "codex", "copilot", "crontab", "gemini", "kilo", "openclaw",
    "opencode", "systemctl",
)  # fmt: skip
KEPT = ("LD_LIBRARY_PATH", "PATH", "TMPDIR", "HAMMER_SECONDS", "REPORT_PICTURES")
SET = {
    "HOME": os.devnull,  # each test has its own
    "LANG": "C.UTF-8",
    "TZ": "UTC",
}
SYSTEM_CONFIG = loading.SYSTEM_CONFIG
# The variables that were there before, as JSON.
OUTSIDE = "TESTS_OUTSIDE"
_PROXIES = ("http_proxy", "https_proxy", "no_proxy")


def set_up():
    """Set up this process. In one that inherits from such a process, nothing changes."""
    before = outside()
    path = ":".join(map(_without_hidden, os.environ.get("PATH", os.defpath).split(":")))
    kept = {name: value for name, value in os.environ.items()
            if name in KEPT or name.startswith("PYTEST_")}  # fmt: skip
    os.environ.clear()
    os.environ.update(kept, **SET, **{"PATH": path, OUTSIDE: json.dumps(before)})
    os.umask(0o022)
    time.tzset()
    hide_configuration()


def hide_configuration():
    """Let the program of this process ignore the machine's own configuration."""
    loading.SYSTEM_CONFIG = os.path.join(os.devnull, "config.toml")


def outside():
    """Return the variables from outside the tests."""
    return json.loads(os.environ.get(OUTSIDE, "null")) or dict(os.environ)


def network():
    """Return the variables that say how to reach packages."""
    return {
        name: value for name, value in outside().items()
        if name.lower() in _PROXIES or name.startswith(("PIP_", "SSL_CERT_", "NODE_EXTRA_CA_"))
        or name.lower().startswith("npm_config_")
    }  # fmt: skip


def real_homes():
    """Return the home of this user, and what HOME says outside."""
    homes = [outside().get("HOME", "")]
    with suppress(KeyError):  # containers have users without an account
        homes.insert(0, pwd.getpwuid(os.getuid()).pw_dir)
    return [home for home in dict.fromkeys(homes) if os.path.isabs(home)] or ["/"]


def _without_hidden(directory):
    """Return the directory, or one with links to all its commands but the hidden ones."""
    if not any(shutil.which(name, path=directory) for name in HIDDEN):
        return directory
    links = tempfile.mkdtemp(prefix="brainsurgeon-tests-path-")
    atexit.register(shutil.rmtree, links, ignore_errors=True)
    os.chmod(links, 0o755)  # for ordinary users, too
    for name in set(os.listdir(directory)).difference(HIDDEN):
        os.symlink(os.path.join(os.path.abspath(directory), name), os.path.join(links, name))
    return links
