"""Options that several commands have, declared once, and their checks."""
