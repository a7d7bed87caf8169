"""Text: corpora, tokenizers and batches. Stands alone in this wing and holds no model."""
