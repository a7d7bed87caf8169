"""Word alignments from the attention of a model, and the choice of the attention to use."""
