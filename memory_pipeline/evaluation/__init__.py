"""How well memory is searched, and what remains of it: labelled questions are put to a real lake."""
