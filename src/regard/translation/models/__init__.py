"""The encoder-decoders and the one protocol they keep. No loops over data, no files."""
