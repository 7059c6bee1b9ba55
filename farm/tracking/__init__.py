"""MLflow as a window on the campaigns: a projection of the ledger, written by one process."""
