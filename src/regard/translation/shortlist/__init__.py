"""Shortlists: the vocabulary of a search, reduced to the words that a source may be translated with."""
