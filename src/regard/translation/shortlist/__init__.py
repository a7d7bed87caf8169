"""The few words that a sentence may be translated with: the vocabulary of a search, cut to its source."""
