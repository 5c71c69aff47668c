"""Figures, tables and reports from run folders, Zoo's own and Stable-Baselines3's."""
