"""Word alignments out of a model's attention: which look to read, and how it was chosen."""
