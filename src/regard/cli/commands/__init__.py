"""One file for each command: it parses options, calls the packages below and prints."""
