"""Keep the session files of coding agents lean, and give back every byte on demand.

The rooms, from the ground up: `model` and `errors` (nouns), `formats` and `decide` (pure), `hosts`
(an agent's world on this machine), `sessions` and `store` (the two hands: one touches session
files, one touches SQLite), `lookup` and `rewrite` (where the hands meet), `operations` (the verbs),
and the doors: `cli` and what else calls a verb.
"""

__version__ = "0.2.0"
