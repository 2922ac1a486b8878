"""The paper's tables and figures, the demo, and the ledger of recorded results."""
