"""The search index in LanceDB: rows, filters and maintenance."""
