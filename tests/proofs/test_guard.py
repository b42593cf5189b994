"""What tests see of the machine: no real home, few variables, no command of an agent."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from brainsurgeon.config import loading
from building import machine
from building.processes import run
from building.world import TESTS
from guard import FORBIDDEN, TouchedTheRealHomeError

SHOW = """
import json, os, shutil, sys, time
from building import machine
machine.set_up()
print(json.dumps([
    dict(os.environ), os.umask(0), time.tzname[0], shutil.which("crontab"), shutil.which("true"),
    os.access(os.path.dirname(shutil.which("true")), os.X_OK), machine.network(),
]))
"""


def test_opening_a_file_in_the_real_home_raises():
    """Each place of an agent is guarded, whether it exists or not."""
    for place in FORBIDDEN:
        with pytest.raises(TouchedTheRealHomeError):
            open(os.path.join(place, "anything"), "rb")  # noqa: SIM115


def test_each_test_has_its_own_home(own_home):
    """HOME is a directory below the test's own temporary one."""
    assert os.path.expanduser("~") == str(own_home)


def test_tests_see_no_command_that_the_program_looks_for():
    """Whatever the machine has, no agent, cron or systemd is found in PATH."""
    assert [name for name in machine.HIDDEN if shutil.which(name)] == []
    assert shutil.which("sh")


def test_surroundings_of_tests_are_the_same_on_every_machine(tmp_path):
    """Variables, umask, zone and commands of the user are hidden; other commands are there."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("crontab", "true"):
        (tools / name).write_text("#!/bin/sh\n")
        (tools / name).chmod(0o755)
    hostile = {
        "PATH": f"{tools}:{os.environ['PATH']}", "LC_ALL": "tr_TR.ISO-8859-9", "TZ": "Asia/Kolkata",
        "https_proxy": "http://nowhere:1", "XDG_CONFIG_HOME": "/etc", "BRAINSURGEON_ROOTS": "no",
        "EDITOR": "false", "FORCE_COLOR": "1", "PYTHONPATH": str(TESTS),
    }  # fmt: skip
    environment = {name: os.environ[name] for name in os.environ.keys() - {machine.OUTSIDE}}
    process = subprocess.run(
        [sys.executable, "-c", SHOW], env={**environment, **hostile}, capture_output=True,
        check=True, umask=0o077,
    )  # fmt: skip
    seen, umask, zone, crontab, true, usable, network = json.loads(process.stdout)

    assert {**seen, "PATH": "", machine.OUTSIDE: "", "HOME": ""} == {
        **os.environ, "PATH": "", machine.OUTSIDE: "", "HOME": ""
    }  # fmt: skip
    assert (umask, zone, crontab) == (0o022, "UTC", None)
    assert os.path.basename(os.path.dirname(true)).startswith("brainsurgeon-tests-path-")
    assert usable
    assert network["https_proxy"] == "http://nowhere:1"
    assert not os.path.exists(true)  # the links are gone with the process
    assert (os.environ["LANG"], time.tzname[0]) == ("C.UTF-8", "UTC")


def test_tests_do_not_see_the_configuration_of_the_machine():
    """Neither in this process nor in another does the program look for it in /etc."""
    assert not os.path.lexists(loading.SYSTEM_CONFIG)
    assert run("config").stdout.startswith(b"# no file")
