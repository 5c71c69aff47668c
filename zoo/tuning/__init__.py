"""Hyperparameter search with Optuna: spaces, studies that many processes share, trials, reports."""
