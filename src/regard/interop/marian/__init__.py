"""Hugging Face's Marian models (OPUS-MT): their folders become runs of ours, and our Transformers such folders.

Neither needs transformers. `regard.translation.translator.Translator.open` opens such a folder like one of ours.
"""
