"""The tables and statements of a store in PostgreSQL.

Clients choose ids: they may be long or hold a zero, which neither a text nor an index takes. So ids are bytes, and are
looked up by their digest. PostgreSQL guesses badly which index is right where it has not counted yet, so that only one
can be: digests stand first in theirs, and the times of sweeps are negative.
"""

from __future__ import annotations

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE toolwire_entries (
        owner text COLLATE "C" NOT NULL,
        kind text COLLATE "C" NOT NULL,
        id bytea NOT NULL,
        parent bytea NOT NULL,
        place bigint NOT NULL,
        mark text COLLATE "C" NOT NULL,
        created double precision NOT NULL,
        expires double precision NOT NULL,
        body bytea NOT NULL
    );
    CREATE UNIQUE INDEX toolwire_entries_name ON toolwire_entries (sha256(id), owner, kind);
    CREATE INDEX toolwire_entries_parent ON toolwire_entries (sha256(parent), owner, kind, place);
    CREATE INDEX toolwire_entries_expires ON toolwire_entries ((-expires));
    """,
)
"""What brings the tables from each version to the next. Those that were released are never changed; a new one only
adds, so that gateways of the version before go on beside it."""

HAS_MIGRATIONS_TABLE = "SELECT to_regclass('toolwire_migrations') IS NOT NULL"
READ_SCHEMA_VERSION = "SELECT coalesce(max(version), 0) FROM toolwire_migrations"
CREATE_MIGRATIONS_TABLE = """CREATE TABLE IF NOT EXISTS toolwire_migrations (
    version integer PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now())"""
RECORD_MIGRATION = "INSERT INTO toolwire_migrations (version) VALUES ($1)"

# Numbers of advisory locks, which all users of a database share: the letters "tool" and what is done under it.
MIGRATION_LOCK = 0x746F6F6C_00000001
SWEEP_LOCK = 0x746F6F6C_00000002

COLUMNS = "owner, kind, id, parent, place, mark, created, expires, body"
UNNEST_ROWS = """unnest($1::text[], $2::text[], $3::bytea[], $4::bytea[], $5::bigint[], $6::text[], $7::float8[],
    $8::float8[],
    $9::bytea[])"""
ON_CONFLICT_UPDATE = """ON CONFLICT (sha256(id), owner, kind) DO UPDATE SET parent = excluded.parent,
    place = excluded.place,
    mark = excluded.mark, created = excluded.created, expires = excluded.expires, body = excluded.body"""

GET = f"""SELECT {COLUMNS} FROM toolwire_entries
    WHERE owner = $1 AND kind = $2 AND sha256(id) = ANY($3::bytea[]) AND expires > $4"""

PUT = f"INSERT INTO toolwire_entries ({COLUMNS}) SELECT * FROM {UNNEST_ROWS} {ON_CONFLICT_UPDATE}"

# The row is locked before its mark is read: of two that want the same, the second sees what the first made of it.
PUT_WHERE = f"""WITH first AS MATERIALIZED (
        SELECT 1 FROM toolwire_entries
        WHERE owner = $10 AND kind = $11 AND sha256(id) = $12 AND mark = ANY($13::text[]) AND expires > $14
        FOR UPDATE),
    written AS (
        INSERT INTO toolwire_entries ({COLUMNS}) SELECT * FROM {UNNEST_ROWS}
        WHERE EXISTS (SELECT FROM first) {ON_CONFLICT_UPDATE}
        RETURNING 1)
    SELECT EXISTS (SELECT FROM written)"""

# Under a lock on each parent, taken by the statement before: this one must see what others appended until then.
APPEND = f"""INSERT INTO toolwire_entries ({COLUMNS})
    SELECT owner, kind, id, parent,
        coalesce((SELECT max(place) FROM toolwire_entries AS there WHERE there.owner = new.owner
            AND sha256(there.parent) = sha256(new.parent) AND there.kind = new.kind), -1)
            + row_number() OVER (PARTITION BY owner, kind, parent ORDER BY number),
        mark, created, expires, body
    FROM {UNNEST_ROWS} WITH ORDINALITY AS new (owner, kind, id, parent, place, mark, created, expires, body, number)
    {ON_CONFLICT_UPDATE}"""

# Each step looks up one entry: written as a plain join, PostgreSQL may read the whole table for each.
CHAIN = f"""WITH RECURSIVE line AS (
        SELECT {COLUMNS}, 1 AS depth FROM toolwire_entries
        WHERE owner = $1 AND kind = $2 AND sha256(id) = $3 AND expires > $4
        UNION ALL
        SELECT older.*, depth + 1 FROM line CROSS JOIN LATERAL (
            SELECT {COLUMNS} FROM toolwire_entries
            WHERE owner = $1 AND kind = $2 AND sha256(id) = sha256(line.parent) AND expires > $4 LIMIT 1) AS older
        WHERE depth < $5 AND line.parent <> '')
    SELECT {COLUMNS} FROM line ORDER BY depth DESC LIMIT $5"""

_CHILDREN = f"""SELECT {COLUMNS} FROM toolwire_entries
    WHERE owner = $1 AND kind = $2 AND sha256(parent) = $3 AND expires > $4
        AND ($5::bigint IS NULL OR place {{after}} $5)
    ORDER BY place {{order}}, id {{order}} LIMIT nullif($6::bigint, 0)"""
CHILDREN = {False: _CHILDREN.format(after=">", order="ASC"), True: _CHILDREN.format(after="<", order="DESC")}
"""By whether the last comes first."""

DELETE = """WITH gone AS (
        DELETE FROM toolwire_entries WHERE owner = $1 AND kind = $2 AND sha256(id) = ANY($3::bytea[])
        RETURNING expires),
    theirs AS (
        DELETE FROM toolwire_entries WHERE owner = $1 AND kind <> $2 AND sha256(parent) = ANY($3::bytea[])
            AND parent <> '')
    SELECT count(*) FROM gone WHERE expires > $4"""

TOUCH = """UPDATE toolwire_entries SET expires = $4
    WHERE owner = $1 AND kind = $2 AND sha256(id) = ANY($3::bytea[]) AND expires > $5 AND expires < $4"""

TRY_SWEEP_LOCK = "SELECT pg_try_advisory_xact_lock($1)"
# What somebody else holds is left for the next time: nobody waits for a sweep, and no sweep for anybody.
DELETE_EXPIRED = """WITH gone AS (
        SELECT ctid FROM toolwire_entries WHERE -expires >= -$1::float8 ORDER BY -expires DESC LIMIT $2
        FOR UPDATE SKIP LOCKED)
    DELETE FROM toolwire_entries WHERE ctid = ANY(ARRAY(SELECT ctid FROM gone)) RETURNING 1"""
# The size of what is there, not of the files: those stay as they are until PostgreSQL has cleaned up.
_ENTRY_SIZE = "pg_column_size(body) + octet_length(id) + octet_length(parent) + 400"
TOTAL_SIZE = f"SELECT coalesce(sum({_ENTRY_SIZE}), 0) FROM toolwire_entries"
DELETE_EXCESS = f"""WITH first AS (
        SELECT ctid, expires, {_ENTRY_SIZE} AS size FROM toolwire_entries ORDER BY -expires DESC LIMIT $2
        FOR UPDATE SKIP LOCKED),
    heaped AS (
        SELECT ctid, sum(size) OVER (ORDER BY -expires DESC ROWS UNBOUNDED PRECEDING) - size AS before FROM first)
    DELETE FROM toolwire_entries WHERE ctid = ANY(ARRAY(SELECT ctid FROM heaped WHERE before < $1)) RETURNING 1"""

COUNT_BY_KIND = """SELECT kind, count(*), sum(octet_length(body)) FROM toolwire_entries WHERE expires > $1
    GROUP BY kind ORDER BY kind"""
TOTALS = """SELECT count(DISTINCT owner) FILTER (WHERE expires > $1) AS owners,
        count(*) FILTER (WHERE expires <= $1) AS expired,
        min(created) FILTER (WHERE expires > $1) AS oldest,
        pg_total_relation_size('toolwire_entries') AS size
    FROM toolwire_entries"""

EXPORT = f"""SELECT {COLUMNS} FROM toolwire_entries WHERE expires > $1 AND ($2::text IS NULL OR owner = $2)
    ORDER BY owner, kind, sha256(id)"""
