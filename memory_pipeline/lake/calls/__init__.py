"""Model answers and their costs."""
