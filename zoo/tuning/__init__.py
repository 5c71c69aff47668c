"""Searching for hyperparameters: spaces, studies that many processes share, trials, and what comes out."""
