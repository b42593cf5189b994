"""Keep the session files of coding agents small, and return every byte on demand.

The packages, from the bottom up: `model` and `errors` (shared values), `formats` and `planning`
(pure), `hosts` (an agent's files and processes), `sessions` and `store` (session files; our SQLite
database), `lookup` and `rewrite` (find a session; change it), `operations` (one module for each
command), and `cli`, `daemon`, `mcp_server` and `api`, which call them.
"""

__version__ = "0.2.0"
