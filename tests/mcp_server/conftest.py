"""An agent with a session that a scan has extracted values from."""

import pytest

from building.mcp_agent import agent_after_scan


@pytest.fixture
def agent(world):
    return agent_after_scan(world)
