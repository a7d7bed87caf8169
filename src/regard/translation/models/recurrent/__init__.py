"""The recurrent encoder-decoder of Bahdanau, Luong and Sutskever."""
