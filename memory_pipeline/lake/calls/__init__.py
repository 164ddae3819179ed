"""Answers of models and what they cost."""
