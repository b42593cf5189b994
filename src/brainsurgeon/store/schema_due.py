"""The part of the schema by which retention finds what is due, without a look at every row."""

from __future__ import annotations

AGES = (
    # Of each session of which something is held: no value was cut out before `extracted_at`, and
    # none was last seen or cut out before `sighted_at`. Retention raises both when it has looked.
    """
    CREATE TABLE ages (
        session_id INTEGER PRIMARY KEY REFERENCES sessions,
        extracted_at REAL NOT NULL,
        sighted_at REAL NOT NULL
    ) STRICT
    """,
    """
    INSERT INTO ages SELECT session_id, min(extracted_at), min(max(extracted_at, sighted_at))
    FROM extractions WHERE blob_id IS NOT NULL GROUP BY session_id
    """,
    "CREATE INDEX extractions_held ON extractions (session_id) WHERE blob_id IS NOT NULL",
    """
    CREATE INDEX extractions_marked ON extractions (session_id)
    WHERE marked_at IS NOT NULL AND blob_id IS NOT NULL
    """,
    """
    CREATE TRIGGER extractions_seen_earlier AFTER UPDATE OF sighted_at ON extractions
    WHEN NEW.sighted_at < OLD.sighted_at BEGIN
        UPDATE ages SET sighted_at = min(sighted_at, max(NEW.extracted_at, NEW.sighted_at))
        WHERE session_id = NEW.session_id;
    END
    """,
)
"""How old the values of each session are at most, and what is marked."""

LOOSE = (
    # The values that no extraction may ever come to name, with when they were last shelved.
    "CREATE TABLE loose (blob_id INTEGER PRIMARY KEY, stored_at REAL NOT NULL) STRICT",
    """
    INSERT INTO loose SELECT id, stored_at FROM blobs
    WHERE NOT EXISTS (SELECT 1 FROM extractions WHERE blob_id = blobs.id)
    """,
    """
    CREATE TRIGGER extractions_added AFTER INSERT ON extractions WHEN NEW.blob_id IS NOT NULL BEGIN
        DELETE FROM loose WHERE blob_id = NEW.blob_id;
        INSERT INTO ages
        VALUES (NEW.session_id, NEW.extracted_at, max(NEW.extracted_at, NEW.sighted_at))
        ON CONFLICT DO UPDATE SET extracted_at = min(extracted_at, excluded.extracted_at),
        sighted_at = min(sighted_at, excluded.sighted_at)
        WHERE excluded.extracted_at < extracted_at OR excluded.sighted_at < sighted_at;
    END
    """,
    """
    CREATE TRIGGER extractions_gone AFTER DELETE ON extractions WHEN OLD.blob_id IS NOT NULL BEGIN
        INSERT INTO loose VALUES (OLD.blob_id, OLD.extracted_at)
        ON CONFLICT DO UPDATE SET stored_at = max(stored_at, excluded.stored_at);
    END
    """,
)
"""The values that nothing names, as far as the database itself can tell."""
