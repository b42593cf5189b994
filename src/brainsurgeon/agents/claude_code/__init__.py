"""Claude Code."""

from brainsurgeon.agents.agent import Agent
from brainsurgeon.agents.claude_code.format import ClaudeCode
from brainsurgeon.agents.claude_code.home import ClaudeHome
from brainsurgeon.agents.claude_code.install import ClaudeInstall
from brainsurgeon.agents.claude_code.presence import ProcessRecords

CLAUDE_CODE = Agent(
    ClaudeCode(), "Claude Code", home=ClaudeHome(), presence=ProcessRecords(),
    install=ClaudeInstall(),
)  # fmt: skip
