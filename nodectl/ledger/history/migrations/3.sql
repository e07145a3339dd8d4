-- the ledger: `cordon` is that which a return ends, `whole` is 1 where the event is about the host itself
CREATE TABLE ledger_event (
    id INTEGER PRIMARY KEY,
    time REAL NOT NULL,
    kind TEXT NOT NULL,
    fleet TEXT NOT NULL,
    host TEXT NOT NULL,
    nodectl TEXT NOT NULL,
    who TEXT NOT NULL,
    reason TEXT NOT NULL,
    whole INTEGER NOT NULL,
    cordon INTEGER REFERENCES ledger_event (id),
    acceptance TEXT NOT NULL,
    began REAL,
    nature TEXT NOT NULL,
    verdict TEXT NOT NULL,
    steps TEXT NOT NULL,
    left_after TEXT NOT NULL
);
CREATE TABLE ledger_part (
    event INTEGER NOT NULL REFERENCES ledger_event (id),
    kind TEXT NOT NULL,
    part TEXT NOT NULL,
    model TEXT NOT NULL,
    place TEXT NOT NULL,
    serial TEXT NOT NULL,
    findings TEXT NOT NULL
);
CREATE INDEX ledger_event_of_a_host ON ledger_event (fleet, host, id);
CREATE INDEX ledger_event_of_a_kind ON ledger_event (kind, id);
CREATE INDEX ledger_part_of_an_event ON ledger_part (event);
CREATE INDEX ledger_part_over_time ON ledger_part (part, event);
