-- runs of measurements
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    time REAL NOT NULL,
    fleet TEXT NOT NULL,
    nodectl TEXT NOT NULL
);
CREATE TABLE measurement (
    run INTEGER NOT NULL REFERENCES run (id),
    identity TEXT NOT NULL,
    probe TEXT NOT NULL,
    hosts TEXT NOT NULL,
    direction TEXT NOT NULL,
    value REAL NOT NULL,
    unit TEXT NOT NULL,
    expected REAL,
    spread REAL,
    conditions TEXT NOT NULL
);
CREATE INDEX measurement_of_a_run ON measurement (run);
CREATE INDEX measurement_over_time ON measurement (identity, run);
CREATE INDEX run_over_time ON run (fleet, time);
-- the ledger: `judged` is what an acceptance said, as JSON
CREATE TABLE ledger_event (
    id INTEGER PRIMARY KEY,
    time REAL NOT NULL,
    kind TEXT NOT NULL,
    fleet TEXT NOT NULL,
    host TEXT NOT NULL,
    nodectl TEXT NOT NULL,
    who TEXT NOT NULL,
    reason TEXT NOT NULL,
    judged TEXT NOT NULL
);
CREATE INDEX ledger_event_of_a_host ON ledger_event (fleet, host, id);
