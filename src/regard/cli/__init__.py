"""The command line: commands parse options, call other packages and print.

Importing it does not import torch, so that `regard --help` answers at once.
"""
