-- The tables of the store in PostgreSQL. Each step leads from one version to the next. Never change a released step. A
-- new step may only add things, so that gateways of the previous version keep working beside it.
--
-- Clients choose the ids, which may be long or contain a zero byte. Neither a text column nor an index accepts that, so
-- ids are bytes and are looked up by their digest. The digests come first in their indexes, and the index of sweeps is on
-- the negative time, so that only one index fits each statement: without statistics, PostgreSQL may pick a bad one. For
-- the same reason the index of owners is on their names with a letter before them.

-- version 1: entries
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

-- version 2: secrets of the installation
CREATE TABLE toolwire_secrets (
    name text COLLATE "C" PRIMARY KEY,
    body bytea NOT NULL
);

-- version 3: the entries of an owner that expire first
CREATE INDEX toolwire_entries_owner ON toolwire_entries (('o' || owner), (-expires));

-- version 4: the counters of limits, and what running requests hold of them
CREATE TABLE toolwire_counters (
    name text COLLATE "C" NOT NULL,
    start bigint NOT NULL,
    unit text COLLATE "C" NOT NULL,
    ends bigint NOT NULL,
    used bigint NOT NULL,
    PRIMARY KEY (name, start)
) WITH (fillfactor = 50);
CREATE TABLE toolwire_reservations (
    counter text COLLATE "C" NOT NULL,
    start bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    place integer NOT NULL,
    amount bigint NOT NULL,
    expires double precision NOT NULL,
    PRIMARY KEY (counter, start, id)
);
CREATE INDEX toolwire_reservations_id ON toolwire_reservations (id);
CREATE INDEX toolwire_reservations_expires ON toolwire_reservations (expires);

CREATE FUNCTION toolwire_reserve_1(
    reservation text, names text[], units text[], amounts bigint[], limits bigint[],
    lease double precision, at double precision
) RETURNS TABLE (taken bigint, opens_after double precision, is_refused boolean) LANGUAGE plpgsql AS $$
DECLARE
    moment double precision := coalesce(at, extract(epoch FROM clock_timestamp())::double precision);
    midnight timestamp := date_trunc('month', to_timestamp(moment) AT TIME ZONE 'UTC');
    month_start bigint := extract(epoch FROM midnight)::bigint;
    month_end bigint := extract(epoch FROM midnight + interval '1 month')::bigint;
    seconds bigint;
    starts bigint[] := '{}';
    stops bigint[] := '{}';
    takens bigint[] := '{}';
    refusals boolean[] := '{}';
    is_known boolean;
    used_now bigint;
    held_now bigint;
BEGIN
    -- A reservation may be lost when the server crashes: its lease would have ended soon.
    PERFORM set_config('synchronous_commit', 'off', true);
    FOR number IN 1 .. cardinality(names) LOOP
        seconds := CASE units[number] WHEN 'minute' THEN 60 WHEN 'hour' THEN 3600 WHEN 'day' THEN 86400 END;
        IF units[number] = 'month' THEN
            starts := starts || month_start;
            stops := stops || month_end;
        ELSIF units[number] = 'none' THEN
            starts := starts || 0::bigint;
            stops := stops || 253402300799;
        ELSE
            starts := starts || floor(moment / seconds)::bigint * seconds;
            stops := stops || (floor(moment / seconds)::bigint + 1) * seconds;
        END IF;
    END LOOP;
    -- Everybody locks counters in the order of their names, so that nobody waits in a circle.
    INSERT INTO toolwire_counters AS c (name, start, unit, ends, used)
        SELECT n, s, u, e, 0 FROM unnest(names, starts, units, stops) AS new (n, s, u, e) ORDER BY n, s
        ON CONFLICT (name, start) DO NOTHING;
    PERFORM 1 FROM toolwire_counters AS c JOIN unnest(names, starts) AS new (n, s) ON c.name = n AND c.start = s
        ORDER BY c.name, c.start FOR UPDATE OF c;
    is_known := EXISTS (SELECT FROM toolwire_reservations AS r WHERE r.id = reservation);
    FOR number IN 1 .. cardinality(names) LOOP
        SELECT c.used INTO used_now FROM toolwire_counters AS c
            WHERE c.name = names[number] AND c.start = starts[number];
        SELECT coalesce(sum(r.amount), 0) INTO held_now FROM toolwire_reservations AS r
            WHERE r.counter = names[number] AND r.start = starts[number] AND r.expires > moment
                AND r.id <> reservation;
        takens := takens || used_now + held_now;
        refusals := refusals || (NOT is_known AND limits[number] >= 0
            AND used_now + held_now + amounts[number] > limits[number]);
    END LOOP;
    IF NOT is_known AND NOT true = ANY (refusals) THEN
        INSERT INTO toolwire_reservations (counter, start, id, place, amount, expires)
            SELECT n, s, reservation, p, a, moment + lease
            FROM unnest(names, starts, amounts) WITH ORDINALITY AS new (n, s, a, p);
    END IF;
    RETURN QUERY SELECT t, e - moment, f FROM unnest(takens, stops, refusals) AS done (t, e, f);
END $$;

CREATE FUNCTION toolwire_settle_1(ids text[], places integer[], amounts bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM toolwire_counters AS c
        WHERE (c.name, c.start) IN (
            SELECT r.counter, r.start FROM toolwire_reservations AS r WHERE r.id = ANY (ids))
        ORDER BY c.name, c.start FOR UPDATE;
    WITH removed AS (
        DELETE FROM toolwire_reservations AS r USING unnest(ids, places, amounts) AS new (i, p, a)
        WHERE r.id = i AND r.place = p RETURNING r.counter, r.start, a),
    sums AS (SELECT counter, removed.start, sum(a)::bigint AS amount FROM removed GROUP BY 1, 2)
    UPDATE toolwire_counters AS c SET used = c.used + sums.amount
        FROM sums WHERE c.name = sums.counter AND c.start = sums.start AND sums.amount <> 0;
END $$;

-- version 5: client keys, and who has changed them
CREATE TABLE toolwire_client_keys (
    name text COLLATE "C" PRIMARY KEY,
    body bytea NOT NULL
);
CREATE TABLE toolwire_key_changes (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at double precision NOT NULL,
    author text NOT NULL,
    action text NOT NULL,
    name text COLLATE "C" NOT NULL,
    detail text NOT NULL
);

-- version 6: the ledger of costs
CREATE TABLE toolwire_usage_rows (
    id text COLLATE "C" PRIMARY KEY,
    at double precision NOT NULL,
    request_id text NOT NULL, operation text NOT NULL, session text NOT NULL,
    key text COLLATE "C" NOT NULL, team text COLLATE "C" NOT NULL, agent text COLLATE "C" NOT NULL,
    subagent text COLLATE "C" NOT NULL, provider text COLLATE "C" NOT NULL, account text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    input bigint, output bigint, cache_read bigint, cache_write bigint, reasoning bigint,
    cost bigint, reported_cost bigint, estimated boolean NOT NULL
);
CREATE INDEX toolwire_usage_rows_at ON toolwire_usage_rows (at);
CREATE TABLE toolwire_usage_hours (
    hour bigint NOT NULL,
    key text COLLATE "C" NOT NULL, team text COLLATE "C" NOT NULL, agent text COLLATE "C" NOT NULL,
    subagent text COLLATE "C" NOT NULL, provider text COLLATE "C" NOT NULL, account text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    calls bigint NOT NULL, unknown_calls bigint NOT NULL, estimated_calls bigint NOT NULL,
    unpriced_calls bigint NOT NULL, reported_calls bigint NOT NULL,
    input bigint NOT NULL, output bigint NOT NULL, cache_read bigint NOT NULL, cache_write bigint NOT NULL,
    reasoning bigint NOT NULL, cost numeric NOT NULL, reported_cost numeric NOT NULL,
    PRIMARY KEY (hour, key, team, agent, subagent, provider, account, model)
);

-- version 7: calls that run, in the ledger
ALTER TABLE toolwire_usage_rows ADD COLUMN running boolean NOT NULL DEFAULT false;
