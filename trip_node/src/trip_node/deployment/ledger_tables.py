"""The tables of the ledger; `reports` holds reports or records of predictions, as they came."""

TABLES = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS reports (
    round INTEGER, client TEXT, message BLOB NOT NULL, signature TEXT NOT NULL, received REAL,
    PRIMARY KEY (round, client)
);
CREATE TABLE IF NOT EXISTS equivocations (
    round INTEGER, client TEXT, message BLOB NOT NULL, signature TEXT NOT NULL,
    PRIMARY KEY (round, client)
);
CREATE TABLE IF NOT EXISTS closed (round INTEGER PRIMARY KEY, cause TEXT NOT NULL, at REAL);
CREATE TABLE IF NOT EXISTS clock (
    one INTEGER PRIMARY KEY CHECK (one = 1), round INTEGER NOT NULL, open REAL NOT NULL
);
"""
