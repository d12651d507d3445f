-- The tables of the store in SQLite. Each step leads from one version to the next. Never change a released step.

-- version 1: entries
CREATE TABLE entries (
    owner TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL, parent TEXT NOT NULL, place INTEGER NOT NULL,
    mark TEXT NOT NULL, created REAL NOT NULL, expires REAL NOT NULL, body BLOB NOT NULL,
    UNIQUE (owner, kind, id)
);
CREATE INDEX entries_by_parent ON entries (owner, parent, kind, place);
CREATE INDEX entries_by_end ON entries (expires);

-- version 2: the bytes of each owner, and its entries that expire first
CREATE INDEX entries_by_owner ON entries (owner, expires, length(body));

-- version 3: the counters of limits, and what running requests hold of them
CREATE TABLE counters (
    name TEXT NOT NULL, unit TEXT NOT NULL, start INTEGER NOT NULL, ends INTEGER NOT NULL,
    used INTEGER NOT NULL, PRIMARY KEY (name, start)
) WITHOUT ROWID;
CREATE TABLE reservations (
    id TEXT NOT NULL, place INTEGER NOT NULL, counter TEXT NOT NULL, unit TEXT NOT NULL,
    start INTEGER NOT NULL, ends INTEGER NOT NULL, amount INTEGER NOT NULL, expires REAL NOT NULL,
    PRIMARY KEY (id, place)
) WITHOUT ROWID;
CREATE INDEX reservations_by_counter ON reservations (counter, start, expires, amount);
CREATE INDEX reservations_by_end ON reservations (expires);

-- version 4: client keys, and who has changed them
CREATE TABLE client_keys (name TEXT PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE key_changes (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, author TEXT NOT NULL, action TEXT NOT NULL,
    name TEXT NOT NULL, detail TEXT NOT NULL
);

-- version 5: the ledger of costs: a row for each call of a provider, and their sums by hour
CREATE TABLE usage_rows (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, at REAL NOT NULL,
    request_id TEXT NOT NULL, operation TEXT NOT NULL, session TEXT NOT NULL, key TEXT NOT NULL,
    team TEXT NOT NULL, agent TEXT NOT NULL, subagent TEXT NOT NULL,
    provider TEXT NOT NULL, account TEXT NOT NULL, model TEXT NOT NULL,
    input INTEGER, output INTEGER, cache_read INTEGER, cache_write INTEGER, reasoning INTEGER,
    cost INTEGER, reported_cost INTEGER, estimated INTEGER NOT NULL
);
CREATE INDEX usage_rows_by_time ON usage_rows (at);
CREATE TABLE usage_hours (
    hour INTEGER NOT NULL, key TEXT NOT NULL, team TEXT NOT NULL, agent TEXT NOT NULL, subagent TEXT NOT NULL,
    provider TEXT NOT NULL, account TEXT NOT NULL, model TEXT NOT NULL,
    calls INTEGER NOT NULL, unknown_calls INTEGER NOT NULL, estimated_calls INTEGER NOT NULL,
    unpriced_calls INTEGER NOT NULL, reported_calls INTEGER NOT NULL, input INTEGER NOT NULL,
    output INTEGER NOT NULL, cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL,
    reasoning INTEGER NOT NULL, cost INTEGER NOT NULL, reported_cost INTEGER NOT NULL,
    PRIMARY KEY (hour, key, team, agent, subagent, provider, account, model)
) WITHOUT ROWID;

-- version 6: calls that run, in the ledger
ALTER TABLE usage_rows ADD COLUMN running INTEGER NOT NULL DEFAULT 0;
CREATE INDEX usage_rows_running ON usage_rows (id) WHERE running;
