"""Files: written whole or not at all, opened without trusting who made them, arrays read where they lie."""
