"""Text: corpora, tokenizers and batches. It imports no model and no configuration."""
