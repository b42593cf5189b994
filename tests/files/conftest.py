"""One session file in a directory of its own, and the moment of its exchange."""

from building.exchange import long_closing_wait, no_leases, path, race, session, short_closing_wait
