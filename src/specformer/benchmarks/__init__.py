"""How fast, beside what: plain versions of our models, the peers, measured in one process."""
