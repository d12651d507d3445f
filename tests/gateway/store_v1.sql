-- A store as version 1 of its tables made it. Never changed: later versions must be able to read it.
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
PRAGMA application_id = 1953983344;
CREATE TABLE entries (
            owner TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL, parent TEXT NOT NULL, place INTEGER NOT NULL,
            mark TEXT NOT NULL, created REAL NOT NULL, expires REAL NOT NULL, body BLOB NOT NULL,
            UNIQUE (owner, kind, id)
        );
CREATE INDEX entries_by_parent ON entries (owner, parent, kind, place);
CREATE INDEX entries_by_end ON entries (expires);
INSERT INTO entries VALUES ('me', 'response', 'resp_1', 'resp_0', 3, 'completed', 1700000000.5, 253402300799.0, X'7b2261223a317d');
INSERT INTO entries VALUES ('me', 'item', 'msg_1', 'resp_1', 0, '', 1700000000.5, 253402300799.0, X'');
PRAGMA user_version = 1;
