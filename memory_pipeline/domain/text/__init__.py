"""Words of texts: how they are cut, compared and ranked."""
