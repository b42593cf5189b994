"""The Dockerfile and the compose file: linted, complete, and the image built where possible."""

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

from building import machine
from building.world import TOP

BESIDE = Path(sys.executable).parent
DOCKERFILE = TOP / "Dockerfile"
COMPOSE = TOP / "deploy" / "compose.yaml"
# Directories of this machine that stand in for a base image.
BORROWED = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/dev", sys.base_prefix)
NO_NETWORK = re.compile(r"name resolution|NewConnectionError|Network is unreachable|ProxyError")
PIP = Path(machine.real_homes()[0]) / ".config" / "pip" / "pip.conf"
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
def test_linters_accept_dockerfile_and_compose_file(words):
    """hadolint, yamllint and check-jsonschema report nothing."""
    process = subprocess.run(
        [BESIDE / words[0], *words[1:]], capture_output=True, text=True, check=False, timeout=60
    )

    assert process.returncode == 0, process.stdout + process.stderr


def test_container_runs_as_the_agents_user_without_other_rights(services):
    """It is offline, read-only and without capabilities, in the agent's process namespace."""
    ours, agents = services["brainsurgeon"], services["openclaw"]

    assert ours["user"] == agents["user"] == "${AGENT_UID:-1000}:${AGENT_GID:-1000}"
    assert ours["network_mode"] == "none"
    assert ours["read_only"] is True
    assert ours["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in ours["security_opt"]
    assert ours["pid"] == "${AGENT_PID:-service:openclaw}"  # the agent's locks hold its pids
    assert (TOP / "deploy" / ours["build"] / "Dockerfile").is_file()


def test_container_directories_lie_on_volumes(services):
    """Sessions and state are directories of the host; the sessions are those of the agent.

    Docker does not make the directory of the state: it would be root's, and not writable.
    """
    ours, agents = services["brainsurgeon"], services["openclaw"]
    sessions, state = ours["volumes"]
    mounts = [sessions.rpartition(":")[2], state["target"]]

    assert state["type"] == "bind"
    assert state["bind"] == {"create_host_path": False}

    assert set(ours["environment"]) == {"OPENCLAW_STATE_DIR", "BRAINSURGEON_STATE_DIR"}
    assert agents["volumes"] == ours["volumes"][:1]
    assert agents["environment"].items() <= ours["environment"].items()
    for place in ours["environment"].values():
        assert any(f"{place}/".startswith(f"{mount}/") for mount in mounts), place


def instructions():
    text = re.sub(r"(?m)^#.*\n", "", DOCKERFILE.read_text()).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def test_image_starts_the_daemon_as_the_user_of_the_build():
    """Its health check is `brainsurgeon status --check`."""
    words = dict(instructions())

    assert words["USER"] == "${UID}"
    assert words["ENTRYPOINT"] == '["brainsurgeon"]'
    assert words["CMD"] == '["run"]'
    assert words.get("STOPSIGNAL", "SIGTERM") == "SIGTERM"
    assert words["HEALTHCHECK"].endswith('CMD ["brainsurgeon", "status", "--check"]')


class Image:
    """A root directory with the content of a base image, in which a build stage is carried out."""

    def __init__(self, root):
        self.root, self.workdir = root, "/"
        self.environment = {"PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin:/usr/sbin"}
        for place in (*BORROWED, "/proc", "/tmp"):
            (root / place.lstrip("/")).mkdir(parents=True, exist_ok=True)
        if PIP.exists():
            shutil.copy(PIP, root / "pip.conf")
            self.environment["PIP_CONFIG_FILE"] = "/pip.conf"

    def run(self, command, uid=0, arguments=()):
        mounts = "".join(
            f"mount --rbind {place} {self.root}{place}; "
            for place in BORROWED if os.path.exists(place)
        )  # fmt: skip
        script = (
            f"set -e; {mounts} mount -t proc proc {self.root}/proc;"
            f" exec chroot --userspec={uid}:{uid} --groups= {self.root}"
            f" /bin/sh -c {shlex.quote(f'cd {self.workdir}; {command}')}"
        )
        return subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script], text=True,
            capture_output=True, check=False, timeout=600, stdin=subprocess.DEVNULL,
            env={**machine.network(), **self.environment, **dict(arguments)},
        )  # fmt: skip

    def copy(self, words, stages):
        *sources, target = words.split()
        context = TOP
        if sources[0].startswith("--from="):
            context = stages[sources.pop(0).partition("=")[2]].root
        directory = Path(f"{self.root}{os.path.join(self.workdir, target)}")
        for source in sources:
            original = context / source.lstrip("/")
            if original.is_dir():
                shutil.copytree(original, directory, symlinks=True, dirs_exist_ok=True)
            else:
                directory.mkdir(parents=True, exist_ok=True)
                shutil.copy(original, directory)


def build(base, **arguments):
    """Carry out the Dockerfile and return the image of its last stage."""
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
            process = image.run(words, arguments=known)
            if NO_NETWORK.search(process.stderr):
                pytest.skip("what brainsurgeon needs cannot be installed here")  # no network
            assert process.returncode == 0, process.stderr
    return image


# Only root can change the root directory of a process; the linters run for every user.
@pytest.mark.long(proves=("cli", "daemon"))
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a root of its own")
def test_image_can_be_built_and_run_without_the_mcp_server(tmp_path):
    """A scan and `status --check` work as an ordinary user; `mcp` names its missing extra."""
    probe = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("mounting is not allowed here")  # building takes mounts
    image = build(tmp_path, MCP="")
    state = image.root / "state"
    # An empty root would be a trouble: its disk may not be mounted.
    main = image.root / "openclaw" / "agents" / "main"
    main.mkdir(parents=True)
    state.mkdir()
    for path in (state, *main.parents[:2], main):
        os.chown(path, UID, UID)
    image.environment |= {"OPENCLAW_STATE_DIR": "/openclaw", "BRAINSURGEON_STATE_DIR": "/state/b",
                          "HOME": "/nonexistent"}  # fmt: skip
    scan = image.run("brainsurgeon scan --once --json", uid=UID)
    health = image.run("brainsurgeon status --check", uid=UID)
    server = image.run("brainsurgeon mcp", uid=UID)

    assert scan.returncode == 0, scan.stderr
    assert json.loads(scan.stdout)["files_failed"] == 0
    assert health.returncode == 0, health.stdout
    assert "needs its extra" in server.stderr
