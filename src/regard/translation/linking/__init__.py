"""Word links learnt from the text that is to be aligned: no model is needed."""
