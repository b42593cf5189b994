"""The real agents on a scripted Messages API, each ready for a turn.

Each function returns the agent and the directory of its sessions.
"""

from proofs.agent_packages import CLAUDE_CODE, OPENCLAW, OPENCLAW_LATEST, package
from proofs.live.claude import ClaudeCode
from proofs.live.claw_messages import OnMessages
from proofs.live.pi import Pi


def pi(base, start, model, name):
    agent = Pi(base, model, name=name)
    return agent, agent.sessions


def claude_code(base, start, model, name):
    places = (package(CLAUDE_CODE) / "@anthropic-ai").glob("claude-code-*/claude")
    program = str(next(path for path in places if path.is_file()))
    agent = ClaudeCode(base, [program, "--model", name], model)
    return agent, agent.config / "projects"


def openclaw(base, start, model, name):
    """Return the OpenClaw release that writes files, its gateway running."""
    agent = OnMessages(base, start, model, OPENCLAW)
    agent.open()
    return agent, agent.state / "agents"


def openclaw_rows(base, start, model, name):
    """Return the OpenClaw release that writes a database, its gateway running."""
    agent = OnMessages(base, start, model, OPENCLAW_LATEST)
    agent.open()
    return agent, agent.state / "agents"


TOOLS = {pi: "bash", claude_code: "Bash", openclaw: "exec", openclaw_rows: "exec"}
