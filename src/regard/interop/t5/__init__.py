"""Hugging Face's T5 models and those of its shape (T5 1.1, Flan-T5, mT5, MADLAD-400): their folders become runs.

transformers are not needed. `regard.translation.translator.Translator.open` opens such a folder like one of ours.
"""
