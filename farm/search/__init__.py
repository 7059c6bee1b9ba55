"""A search as a user starts it: assemble, run, resume, export."""
