"""From a name to a session, an entry, its values, a scope: resolved once, handed on."""
