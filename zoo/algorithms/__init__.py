"""The algorithms, one file each, and the bases of their families."""
