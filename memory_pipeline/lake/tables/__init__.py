"""Delta tables: commits, deletion of rows, vacuum, the ledger, marts and tombstones."""
