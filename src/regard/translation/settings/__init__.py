"""Settings: one class for each component, read from TOML files or made in Python, and checked when made."""
