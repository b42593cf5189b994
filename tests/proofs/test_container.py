"""The image and the compose file: clean by their linters, enough, and done where that can be."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from building.world import TOP

BESIDE = Path(sys.executable).parent
DOCKERFILE = TOP / "Dockerfile"
COMPOSE = TOP / "deploy" / "compose.yaml"
# What a base image brings along: of this machine, for reading.
BORROWED = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/dev", sys.base_prefix)
NO_NETWORK = re.compile(r"name resolution|NewConnectionError|Network is unreachable|ProxyError")
PIP = Path(os.path.expanduser("~")) / ".config" / "pip" / "pip.conf"
UID = 12345


@pytest.fixture
def services():
    return yaml.safe_load(COMPOSE.read_text())["services"]


@pytest.mark.parametrize(
    "words",
    [
        ("hadolint", "--failure-threshold", "style", str(DOCKERFILE)),
        ("yamllint", "--strict", "-d",
         "{extends: default, rules: {document-start: disable, line-length: {max: 80}}}",
         str(COMPOSE)),
        ("check-jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)),
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_a_linter_has_nothing_to_say(words):
    """Each file is clean by the linter that there is for it."""
    done = subprocess.run(
        [BESIDE / words[0], *words[1:]], capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_container_has_the_agents_uid_and_nothing_else(services):
    """It runs as the owner of the sessions, offline, read-only, without capabilities."""
    ours, agents = services["brainsurgeon"], services["openclaw"]

    assert ours["user"] == agents["user"] == "${AGENT_UID:-1000}:${AGENT_GID:-1000}"
    assert ours["network_mode"] == "none"
    assert ours["read_only"] is True
    assert ours["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in ours["security_opt"]
    assert (TOP / "deploy" / ours["build"] / "Dockerfile").is_file()


def test_it_sees_the_agents_processes_by_their_own_numbers(services):
    """It shares the process namespace of the agent's container, whose locks name them."""
    assert services["brainsurgeon"]["pid"] == "${AGENT_PID:-service:openclaw}"


def test_what_the_container_is_told_lies_on_its_volumes(services):
    """Sessions and state are places of the host, the sessions the same as the agent's."""
    ours, agents = services["brainsurgeon"], services["openclaw"]
    mounts = [volume.rpartition(":")[2] for volume in ours["volumes"]]

    assert set(ours["environment"]) == {"OPENCLAW_STATE_DIR", "BRAINSURGEON_STATE_DIR"}
    assert agents["volumes"] == ours["volumes"][:1]
    assert agents["environment"].items() <= ours["environment"].items()
    for place in ours["environment"].values():
        assert any(f"{place}/".startswith(f"{mount}/") for mount in mounts), place


# --- the image -----------------------------------------------------------------------------------


def instructions():
    text = re.sub(r"(?m)^#.*\n", "", DOCKERFILE.read_text()).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def test_the_image_starts_the_daemon_as_an_ordinary_user():
    """Its last words are those of the program, run by whoever the build was told."""
    words = dict(instructions())

    assert words["USER"] == "${UID}"
    assert words["ENTRYPOINT"] == '["brainsurgeon"]'
    assert words["CMD"] == '["run"]'
    assert words.get("STOPSIGNAL", "SIGTERM") == "SIGTERM"
    assert words["HEALTHCHECK"].endswith('CMD ["brainsurgeon", "status", "--check"]')


class Image:
    """A root that is empty but for what a base image has, in which a stage is carried out."""

    def __init__(self, place):
        self.root = place
        self.workdir, self.environment = (
            "/",
            {"PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin:/usr/sbin"},
        )
        for borrowed in (*BORROWED, "/proc", "/tmp"):
            (place / borrowed.lstrip("/")).mkdir(parents=True, exist_ok=True)
        if PIP.exists():
            shutil.copy(PIP, place / "pip.conf")
            self.environment["PIP_CONFIG_FILE"] = "/pip.conf"

    def run(self, command, uid=0, arguments=()):
        mounts = "".join(
            f"mount --rbind {one} {self.root}{one}; " for one in BORROWED if os.path.exists(one)
        )
        inside = (
            f"set -e; {mounts} mount -t proc proc {self.root}/proc;"
            f" exec chroot --userspec={uid}:{uid} --groups= {self.root}"
            f" /bin/sh -c {shlex.quote(f'cd {self.workdir}; {command}')}"
        )
        passed = {key: value for key, value in os.environ.items() if key.lower().endswith("_proxy")
                  or key.startswith("PIP_")}  # fmt: skip
        return subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", inside], text=True,
            capture_output=True, check=False, timeout=600, stdin=subprocess.DEVNULL,
            env={**passed, **self.environment, **dict(arguments)},
        )  # fmt: skip

    def copy(self, words, stages):
        *sources, target = words.split()
        above = TOP
        if sources[0].startswith("--from="):
            above = stages[sources.pop(0).partition("=")[2]].root
        for source in sources:
            taken = above / source.lstrip("/")
            place = Path(f"{self.root}{os.path.join(self.workdir, target)}")
            if taken.is_dir():
                shutil.copytree(taken, place, symlinks=True, dirs_exist_ok=True)
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(taken, place)


def build(base, **arguments):
    """Carry out the Dockerfile, stage by stage; give the last one."""
    stages, image, known = {}, None, {}
    for name, words in instructions():
        if name == "FROM":
            stage = words.split()[-1]
            (base / str(len(stages))).mkdir()
            stages[stage] = image = Image(base / str(len(stages)))
        elif name == "ARG":
            key, _, value = words.partition("=")
            known[key] = arguments.get(key, value)
        elif name == "ENV":
            key, _, value = words.partition("=")
            image.environment[key] = value.replace("$PATH", image.environment.get("PATH", ""))
        elif name == "WORKDIR":
            image.workdir = words
            (image.root / words.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif name == "COPY":
            image.copy(words, stages)
        elif name == "RUN":
            done = image.run(words, arguments=known)
            if NO_NETWORK.search(done.stderr):
                pytest.skip("what brainsurgeon needs cannot be installed here")  # no network
            assert done.returncode == 0, done.stderr
    return image


# Others have no way into a root of their own; the file itself is linted for everybody.
@pytest.mark.long(proves=("cli", "daemon"))
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a root of its own")
def test_the_image_can_be_built_and_runs(tmp_path):
    """Its commands, in an empty root: installed by hash, without the server where it is not wanted.

    The program then works as an ordinary user.
    """
    probe = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("mounting is not allowed here")  # so no image can have a root of its own
    image = build(tmp_path, MCP="")
    state = image.root / "state"
    (image.root / "openclaw" / "agents").mkdir(parents=True)
    state.mkdir()
    for path in (state, image.root / "openclaw", image.root / "openclaw" / "agents"):
        os.chown(path, UID, UID)
    image.environment |= {"OPENCLAW_STATE_DIR": "/openclaw", "BRAINSURGEON_STATE_DIR": "/state/b",
                          "HOME": "/nonexistent"}  # fmt: skip
    passed = image.run("brainsurgeon scan --once --json", uid=UID)
    health = image.run("brainsurgeon status --check", uid=UID)
    server = image.run("brainsurgeon mcp", uid=UID)

    assert passed.returncode == 0, passed.stderr
    assert json.loads(passed.stdout)["files_failed"] == 0
    assert health.returncode == 0, health.stdout
    assert "needs its extra" in server.stderr
