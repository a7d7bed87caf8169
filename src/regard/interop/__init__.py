"""Weights in and out: other projects' modules and files become ours, and ours theirs, without changing an answer.

Each file knows one other project and imports it, if at all, when it is asked to. Masks are converted at the door: in
here True means that a key may be read, whatever it means outside.
"""
