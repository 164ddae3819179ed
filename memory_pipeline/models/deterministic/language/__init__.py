"""Language rules, mostly for English: sentences, verbs, names, dates and cue words."""
