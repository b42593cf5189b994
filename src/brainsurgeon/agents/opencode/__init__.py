"""opencode, and Kilo CLI, which keeps its sessions in the same way."""

from brainsurgeon.agents.agent import Agent
from brainsurgeon.agents.opencode.format import Opencode
from brainsurgeon.agents.opencode.home import KiloHome, OpencodeHome
from brainsurgeon.agents.opencode.install import KiloInstall, OpencodeInstall
from brainsurgeon.agents.opencode.rows import OpencodeDatabases

_DATA, _KILO = OpencodeDatabases("opencode"), OpencodeDatabases("kilo")
OPENCODE = Agent(
    Opencode(), "opencode", home=OpencodeHome(), install=OpencodeInstall(), databases=_DATA
)
KILO = Agent(Opencode(), "Kilo CLI", "kilo", KiloHome(), install=KiloInstall(), databases=_KILO)
