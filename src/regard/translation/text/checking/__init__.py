"""A corpus looked over before it is trained on: counts, lengths, repetitions, characters, pieces."""
