"""The real agents on a scripted Messages API, each ready for a turn.

Each function returns the agent and the directory of its sessions. The agent has the variables
`more` in its environment.
"""

from proofs.agent_packages import CLAUDE_CODE, OPENCLAW, OPENCLAW_LATEST, package
from proofs.live.claude import ClaudeCode
from proofs.live.claw_messages import OnMessages
from proofs.live.pi import Pi


def pi(base, start, model, name, more=None):
    agent = Pi(base, model, name=name)
    agent.environment |= more or {}
    return agent, agent.sessions


def claude_code(base, start, model, name, more=None):
    places = (package(CLAUDE_CODE) / "@anthropic-ai").glob("claude-code-*/claude")
    program = str(next(path for path in places if path.is_file()))
    agent = ClaudeCode(base, [program, "--model", name], model)
    agent.environment |= more or {}
    return agent, agent.config / "projects"


def openclaw(base, start, model, name, more=None, release=OPENCLAW):
    """Return the OpenClaw release that writes files, its gateway running."""
    agent = OnMessages(base, start, model, release)
    agent.environment |= more or {}
    agent.open()
    return agent, agent.state / "agents"


def openclaw_rows(base, start, model, name, more=None):
    """Return the OpenClaw release that writes a database, its gateway running."""
    return openclaw(base, start, model, name, more, OPENCLAW_LATEST)


TOOLS = {pi: "bash", claude_code: "Bash", openclaw: "exec", openclaw_rows: "exec"}
