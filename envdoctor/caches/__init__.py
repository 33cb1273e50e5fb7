"""Compile caches: what is in them, whose it is, and moving them."""
