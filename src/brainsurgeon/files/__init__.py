"""Read, lease, exchange and retire files; read databases and processes. Knows no agent."""
