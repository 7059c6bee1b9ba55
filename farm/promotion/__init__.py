"""A winner leaves the search: final folder, certificate, and the copy into a checkout."""
