"""The tables of a run, built up by numbered steps: a file of an older version is brought up to date when it
is opened, one of a newer version is refused.
"""

from __future__ import annotations

import sqlite3

from assay.records import UserError

APPLICATION = 0x41535359
"""Says in the file's header that it is ours."""
STEPS = (
    """
    CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
    CREATE TABLE sources (digest TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT;
    CREATE TABLE problems (
        name TEXT PRIMARY KEY,
        digest TEXT NOT NULL,
        path TEXT NOT NULL,
        category TEXT NOT NULL,
        regime TEXT NOT NULL,
        level INTEGER NOT NULL,
        source TEXT NOT NULL REFERENCES sources(digest),
        trouble TEXT NOT NULL DEFAULT ''
    ) STRICT;
    CREATE TABLE candidates (
        id INTEGER PRIMARY KEY,
        problem TEXT NOT NULL REFERENCES problems(name),
        sample INTEGER NOT NULL,
        turn INTEGER NOT NULL,
        parent INTEGER REFERENCES candidates(id),
        name TEXT NOT NULL,
        suffix TEXT NOT NULL,
        source TEXT NOT NULL REFERENCES sources(digest),
        cost_usd REAL,
        UNIQUE (problem, sample, turn)
    ) STRICT;
    CREATE TABLE verdicts (
        candidate INTEGER PRIMARY KEY REFERENCES candidates(id),
        judged_at TEXT NOT NULL,
        worker TEXT NOT NULL,
        seconds REAL NOT NULL,
        status TEXT NOT NULL,
        record TEXT NOT NULL
    ) STRICT;
    """,
    """
    CREATE TABLE transcripts (
        candidate INTEGER PRIMARY KEY REFERENCES candidates(id),
        model TEXT NOT NULL,
        system TEXT NOT NULL REFERENCES sources(digest),
        prompt TEXT NOT NULL REFERENCES sources(digest),
        answer TEXT NOT NULL,
        tokens_in INTEGER,
        tokens_out INTEGER,
        seconds REAL NOT NULL
    ) STRICT;
    """,
    """
    CREATE TABLE requests (
        id INTEGER PRIMARY KEY,
        problem TEXT NOT NULL REFERENCES problems(name),
        proposer TEXT NOT NULL,
        operator TEXT NOT NULL,
        needs TEXT NOT NULL,
        parents TEXT NOT NULL,
        idea INTEGER REFERENCES ideas(id),
        asked_at TEXT NOT NULL,
        answered_at TEXT,
        trouble TEXT NOT NULL DEFAULT '',
        exhausted INTEGER NOT NULL DEFAULT 0,
        cost_usd REAL,
        seconds REAL NOT NULL DEFAULT 0
    ) STRICT;
    CREATE TABLE ideas (
        id INTEGER PRIMARY KEY,
        request INTEGER NOT NULL REFERENCES requests(id),
        parent INTEGER REFERENCES ideas(id),
        title TEXT NOT NULL,
        hypothesis TEXT NOT NULL,
        mechanism TEXT NOT NULL,
        predicted_gain REAL
    ) STRICT;
    CREATE TABLE exchanges (
        request INTEGER PRIMARY KEY REFERENCES requests(id),
        model TEXT NOT NULL,
        system TEXT NOT NULL REFERENCES sources(digest),
        prompt TEXT NOT NULL REFERENCES sources(digest),
        answer TEXT NOT NULL,
        tokens_in INTEGER,
        tokens_out INTEGER,
        seconds REAL NOT NULL
    ) STRICT;
    CREATE TABLE lineage (
        candidate INTEGER PRIMARY KEY REFERENCES candidates(id),
        request INTEGER NOT NULL REFERENCES requests(id),
        idea INTEGER REFERENCES ideas(id),
        actions TEXT NOT NULL,
        note TEXT NOT NULL,
        normal TEXT NOT NULL,
        duplicate_of INTEGER REFERENCES candidates(id)
    ) STRICT;
    CREATE INDEX lineage_normal ON lineage(normal);
    CREATE TABLE builds (
        candidate INTEGER PRIMARY KEY REFERENCES candidates(id),
        artefact TEXT NOT NULL,
        record TEXT NOT NULL
    ) STRICT;
    CREATE TABLE orders (
        id INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        candidate INTEGER NOT NULL REFERENCES candidates(id)
    ) STRICT;
    CREATE TABLE learned (name TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT;
    """,
)


def bring_up_to_date(connection: sqlite3.Connection, path: str) -> None:
    """Take the steps that this file has not seen."""
    if _version(connection, path) == len(STEPS):
        return
    with connection:  # ends what was begun
        connection.execute("BEGIN IMMEDIATE")
        before = _version(connection, path)  # once more: another process may have been first
        for number, step in enumerate(STEPS[before:], before + 1):
            for statement in filter(str.strip, step.split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")


def _version(connection: sqlite3.Connection, path: str) -> int:
    names = ("application_id", "user_version")
    application, version = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if tables and application != APPLICATION:
        raise UserError(f"{path}: is a database, but no run of Assay's")
    if version > len(STEPS):
        raise UserError(
            f"{path}: a newer Assay wrote it (schema {version}, this one knows {len(STEPS)}): update Assay"
        )
    return int(version)
