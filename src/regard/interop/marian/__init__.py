"""Hugging Face's Marian models (OPUS-MT): their folders are opened as runs, and our Transformers exported to them.

Neither needs transformers. `regard.translation.translator.Translator.open` opens such a folder like one of ours.
"""
