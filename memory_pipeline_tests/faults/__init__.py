"""What networks and stores do wrong, done on purpose, and processes that are killed: nothing is lost or doubled."""
