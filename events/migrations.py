"""The tables of `events.db`, as each schema added to those of the one before."""

from __future__ import annotations

# Each entry takes the store one `user_version` further; entries are only ever added.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE store (secret BLOB NOT NULL, created_at INTEGER NOT NULL);

    -- seq is counted here and not by AUTOINCREMENT, which leaves gaps after a refused insert:
    -- with this counter every hole is damage.
    CREATE TABLE head (seq INTEGER NOT NULL, running BLOB NOT NULL);
    INSERT INTO head VALUES (0, zeroblob(32));

    CREATE TABLE events (
        seq INTEGER PRIMARY KEY,
        user BLOB NOT NULL,
        user_seq INTEGER NOT NULL,
        session BLOB,
        type TEXT NOT NULL,
        version INTEGER NOT NULL,
        key BLOB NOT NULL UNIQUE,
        happened_at INTEGER NOT NULL,
        recorded_at INTEGER NOT NULL,
        caused_by INTEGER,
        lineage BLOB NOT NULL,
        basis INTEGER,
        bus_stream TEXT,
        bus_epoch TEXT,
        bus_seq INTEGER,
        body BLOB NOT NULL,
        commitment BLOB NOT NULL,
        chain BLOB NOT NULL
    );
    CREATE UNIQUE INDEX events_by_user ON events (user, user_seq);
    CREATE INDEX parked ON events (user) WHERE type = 'work.parked';
    CREATE INDEX conflicts ON events (caused_by) WHERE type = 'turn.conflicted';
    CREATE INDEX revisions ON events (user, user_seq) WHERE type = 'turn.revised';

    -- Tables that hold what people said are only ever appended to, and erasing empties a row in place
    -- (text NULL). secure_delete clears a freed cell, but not the copies that SQLite leaves behind in a
    -- page when it moves cells to a neighbour, which it does on inserts in the middle and on deletes
    -- (btree.c, balance_nonroot). So: rowid order, text in no index, no DELETE.
    CREATE TABLE words (
        seq INTEGER NOT NULL, n INTEGER NOT NULL, nonce BLOB NOT NULL, text BLOB, PRIMARY KEY (seq, n)
    );
    CREATE TABLE names (reference BLOB PRIMARY KEY NOT NULL, kind TEXT NOT NULL, text BLOB);

    -- The session registry: rows written in the transaction of the events they index.
    CREATE TABLE users (
        user BLOB PRIMARY KEY,
        user_seq INTEGER NOT NULL,   -- the last one given out
        decided INTEGER NOT NULL,    -- user_seq of the last event that changed facts, scopes or units
        chain BLOB NOT NULL,
        forgotten INTEGER            -- user_seq of its UserForgotten: the tombstone
    ) WITHOUT ROWID;
    CREATE TABLE sessions (
        session BLOB PRIMARY KEY,
        user BLOB NOT NULL,
        turns INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        first_at INTEGER,
        last_at INTEGER,
        closed INTEGER NOT NULL,     -- 1 when no turn came after the last SessionClosed
        forgotten INTEGER            -- user_seq of its SessionForgotten: the tombstone
    ) WITHOUT ROWID;
    CREATE INDEX sessions_by_user ON sessions (user);
    -- Forgotten sessions and users (then subject = user), how far erasing got (seq) and what it took; kept here so
    -- that it survives a restart in the middle.
    CREATE TABLE erasures (
        subject BLOB PRIMARY KEY,
        user BLOB NOT NULL,
        forgotten INTEGER NOT NULL,      -- user_seq and seq of the SessionForgotten or UserForgotten
        forgotten_seq INTEGER NOT NULL,
        erased INTEGER,                  -- user_seq of the SessionErased or UserErased
        reopened INTEGER NOT NULL DEFAULT 0, -- 1 once messages from after it were taken again
        reached INTEGER NOT NULL DEFAULT 0,
        words INTEGER NOT NULL DEFAULT 0,
        names INTEGER NOT NULL DEFAULT 0,
        dead_letters INTEGER NOT NULL DEFAULT 0,
        bus_erased INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID;
    CREATE INDEX erasures_open ON erasures (user) WHERE erased IS NULL;
    -- What cutting needs: turns and closings in log order, and which extraction covers a turn.
    CREATE TABLE turns (
        seq INTEGER PRIMARY KEY,
        session BLOB NOT NULL,
        closing INTEGER NOT NULL,    -- 0 a turn, 1 a SessionClosed, 2 a ChunkClosed
        last_turn INTEGER,           -- of a ChunkClosed: the turn its chunk ends with
        extraction INTEGER,          -- seq of the FactsExtracted or WorkParked that took the turn
        turn BLOB,                   -- which turn, whatever its revision: the reference of its first key
        revision INTEGER,            -- the highest one that is here
        standing INTEGER             -- seq of the event with the words that count; NULL once retracted
    );
    CREATE INDEX turns_by_session ON turns (session, seq);
    CREATE INDEX turns_waiting ON turns (session, seq)
        WHERE closing = 0 AND extraction IS NULL AND standing IS NOT NULL;
    CREATE INDEX turns_retracted ON turns (session) WHERE closing = 0 AND standing IS NULL;
    CREATE INDEX turns_open ON turns (session, seq) WHERE closing = 0 AND extraction IS NULL;
    CREATE INDEX turns_by_extraction ON turns (extraction) WHERE extraction IS NOT NULL;
    CREATE UNIQUE INDEX turns_by_turn ON turns (turn) WHERE turn IS NOT NULL;
    -- Retracted turns, also those that never came: a later delivery is refused.
    CREATE TABLE retractions (turn BLOB PRIMARY KEY, user_seq INTEGER NOT NULL) WITHOUT ROWID;
    -- Which event read the words of which: what follows from a turn is found from it.
    CREATE TABLE sources (
        source INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        faint INTEGER NOT NULL,      -- 1: falls when the words of the source are erased, not when it is edited
        PRIMARY KEY (source, seq)
    ) WITHOUT ROWID;
    -- Events that stand no more, since which user_seq. erases: 0 the words stay, as history; 1 they must go;
    -- 2 they are gone from the tables, 3 from every file of the log. Of forgotten sessions nothing is listed
    -- here: their tombstone voids by rule.
    CREATE TABLE voids (
        seq INTEGER PRIMARY KEY, user BLOB NOT NULL, since INTEGER NOT NULL, erases INTEGER NOT NULL
    );
    CREATE INDEX voids_by_user ON voids (user);
    CREATE INDEX voids_unerased ON voids (seq) WHERE erases = 1;
    CREATE INDEX voids_emptied ON voids (seq) WHERE erases = 2;
    CREATE TABLE lineage (
        session BLOB NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (session, seq)
    ) WITHOUT ROWID;

    CREATE TABLE bus_checkpoint (
        stream TEXT PRIMARY KEY, epoch TEXT NOT NULL, seq INTEGER NOT NULL, at INTEGER
    ) WITHOUT ROWID;
    CREATE TABLE letters (
        id INTEGER PRIMARY KEY,
        received_at INTEGER NOT NULL,
        user BLOB,
        session BLOB,
        subject BLOB NOT NULL,
        payload BLOB,
        message_id BLOB,             -- its Nats-Msg-Id, if it had one
        published_at INTEGER NOT NULL,
        reason TEXT NOT NULL,
        key BLOB,
        turn BLOB,                   -- reference of the key of its turn's first revision
        bus_stream TEXT NOT NULL,
        bus_epoch TEXT NOT NULL,
        bus_seq INTEGER NOT NULL,
        UNIQUE (bus_stream, bus_epoch, bus_seq)
    );
    CREATE INDEX letters_by_session ON letters (session);
    CREATE INDEX letters_by_key ON letters (key);
    CREATE INDEX letters_by_turn ON letters (turn) WHERE payload IS NOT NULL;
    CREATE VIEW dead_letters AS SELECT * FROM letters WHERE payload IS NOT NULL;
    -- Hashes of each Memory when the daemon stopped, for `memforestd verify` without a daemon.
    CREATE TABLE digests (
        user BLOB PRIMARY KEY, user_seq INTEGER NOT NULL,
        facts TEXT NOT NULL, scopes TEXT NOT NULL, trees TEXT NOT NULL, units TEXT NOT NULL
    ) WITHOUT ROWID;
    -- Sessions, and users (session = user), that another source says were forgotten (a bucket on the bus, a
    -- receipt, a newer store): they are refused here, too, and forgotten as soon as the daemon runs.
    CREATE TABLE tombstones (
        session BLOB PRIMARY KEY, user BLOB NOT NULL, forgotten_at INTEGER NOT NULL
    ) WITHOUT ROWID;
    -- Messages that repeat what an event says already: they hold its words, too.
    CREATE TABLE copies (
        stream TEXT NOT NULL, epoch TEXT NOT NULL, seq INTEGER NOT NULL, event INTEGER NOT NULL,
        PRIMARY KEY (stream, epoch, seq, event)
    ) WITHOUT ROWID;
    CREATE INDEX copies_by_event ON copies (event);
    -- Messages whose words were forgotten or retracted here and may still be on the bus; a row goes once its
    -- message is deleted there, or cannot be there any more. subject: whose erasure it belongs to, if to one.
    CREATE TABLE unwanted (
        stream TEXT NOT NULL, epoch TEXT NOT NULL, seq INTEGER NOT NULL, subject BLOB,
        PRIMARY KEY (stream, epoch, seq)
    ) WITHOUT ROWID;
    CREATE INDEX unwanted_by_subject ON unwanted (subject);
    -- Of a refused message only its key's reference and a count are kept, never a byte of it.
    CREATE TABLE refusals (key BLOB PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
    """,
    """
    -- What was asked of models: a row for each answer and each parking, with what it took; numbers and references
    -- only. Whatever was answered before there was this table had cost nothing.
    CREATE TABLE ledger (
        seq INTEGER PRIMARY KEY,
        user BLOB NOT NULL,
        session BLOB,                -- NULL when its words came from several
        task TEXT NOT NULL,
        day INTEGER NOT NULL,        -- since 1970 in UTC, when it was recorded
        request BLOB,                -- of an answer what was asked; NULL of older ones
        parked INTEGER NOT NULL,     -- 0 an answer; 1 work that is parked; 2 work that was
        facts INTEGER, missed INTEGER NOT NULL, skipped INTEGER NOT NULL, -- of an extraction
        calls INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL,
        completion_tokens INTEGER NOT NULL, cost_nano INTEGER NOT NULL, latency_ms INTEGER NOT NULL
    );
    INSERT INTO ledger SELECT seq, user, CASE length(lineage) WHEN 16 THEN lineage END,
        CASE type WHEN 'facts.extracted' THEN 'extract' WHEN 'interval.summarised' THEN 'summarise'
            WHEN 'nodes.merged' THEN 'merge' ELSE json_extract(CAST(body AS TEXT), '$.task') END,
        recorded_at / 86400000, NULL, type = 'work.parked',
        CASE type WHEN 'facts.extracted' THEN json_array_length(CAST(body AS TEXT), '$.facts') END,
        0, 0, 0, 0, 0, 0, 0, 0
        FROM events WHERE type IN ('facts.extracted', 'interval.summarised', 'nodes.merged', 'work.parked');
    UPDATE ledger SET parked = 2 WHERE parked = 1 AND (
        (task = 'extract' AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.extraction = ledger.seq))
        OR EXISTS (SELECT 1 FROM voids v WHERE v.seq = ledger.seq)
        OR EXISTS (SELECT 1 FROM erasures x WHERE ledger.seq < x.forgotten_seq AND (x.subject = ledger.user
            OR EXISTS (SELECT 1 FROM lineage l WHERE l.session = x.subject AND l.seq = ledger.seq))));
    CREATE INDEX ledger_by_request ON ledger (user, request) WHERE request IS NOT NULL;
    CREATE INDEX ledger_by_day ON ledger (day);
    CREATE INDEX ledger_by_session ON ledger (session) WHERE session IS NOT NULL;
    CREATE INDEX ledger_parked ON ledger (seq) WHERE parked = 1;
    """,
    """
    -- What was asked of models for questions: a sum for each user, task and day; numbers and references only. Of
    -- what users spent who were forgotten, or who are not in the log, the user is x''; of days past the day is -1.
    CREATE TABLE query_usage (
        user BLOB NOT NULL,
        day INTEGER NOT NULL,        -- since 1970 in UTC, when it was asked
        task TEXT NOT NULL,
        calls INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL,
        completion_tokens INTEGER NOT NULL, cost_nano INTEGER NOT NULL, latency_ms INTEGER NOT NULL,
        PRIMARY KEY (user, day, task)
    ) WITHOUT ROWID;
    CREATE INDEX query_usage_by_day ON query_usage (day);
    """,
)
