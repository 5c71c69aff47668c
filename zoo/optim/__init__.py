"""Parameters in flat vectors, what moves them, and the runner that takes updates eagerly or compiled."""
