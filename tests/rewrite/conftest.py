"""One session file in a directory of its own, and the moment of its exchange."""

from building.exchange import impatient, path, patient, race, session
