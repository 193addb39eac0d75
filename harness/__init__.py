"""The measuring room. Nothing is imported here, so that any part of it starts at once."""
