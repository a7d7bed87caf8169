"""Search: greedy, beam, sampling, and the score of a given translation. Knows ids, no text."""
