"""Optimizers, schedules, flat parameters, and the program that runs updates eagerly or compiled."""
