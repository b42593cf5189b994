"""Keep the session files of coding agents lean, and give back every byte on demand.

The rooms, from the ground up: `model` and `errors` (nouns), `formats` and `decide` (pure),
`sessions` and `store` (the two hands: one touches session files, one touches SQLite),
`operations` (the verbs, where the hands meet), and the doors: `cli` and what else calls a verb.
"""

__version__ = "0.1.0"
