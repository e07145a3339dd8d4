-- what trials said
CREATE TABLE trial (
    id INTEGER PRIMARY KEY,
    time REAL NOT NULL,
    fleet TEXT NOT NULL,
    nodectl TEXT NOT NULL,
    profile TEXT NOT NULL,
    baseline TEXT NOT NULL,
    verdict TEXT NOT NULL,
    document TEXT NOT NULL
);
CREATE INDEX trial_over_time ON trial (fleet, time);
