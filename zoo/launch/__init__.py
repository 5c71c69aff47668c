"""Many jobs of one command: their folder, how they stand, who runs them."""
