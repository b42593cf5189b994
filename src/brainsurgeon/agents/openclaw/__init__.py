"""OpenClaw."""

from brainsurgeon.agents.agent import Agent
from brainsurgeon.agents.openclaw.format import OpenClaw
from brainsurgeon.agents.openclaw.home import OpenClawHome
from brainsurgeon.agents.openclaw.install import OpenClawInstall
from brainsurgeon.agents.openclaw.presence import LockFiles
from brainsurgeon.agents.openclaw.rows import OpenClawDatabases

OPENCLAW = Agent(
    OpenClaw(),
    "OpenClaw",
    home=OpenClawHome(),
    presence=LockFiles(),
    install=OpenClawInstall(),
    databases=OpenClawDatabases(),
)
