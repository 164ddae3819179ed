"""What the rules know of languages: words, names, dates and sentences."""
