"""Folders of Hugging Face: Marian (OPUS-MT) and T5 are opened as runs, our Transformers are exported to Marian.

None of it needs transformers. `regard.translation.translator.Translator.open` opens such a folder like one of ours.
"""
