"""Folders of Hugging Face's `save_pretrained`: the code that all kinds of models share.

`regard.interop.marian` and `regard.interop.t5` read one kind each, and `regard.interop.opening` chooses between them.
None of them needs transformers.
"""
