"""Parameters in flat vectors, what moves them, and the program that runs updates eagerly or compiled."""
