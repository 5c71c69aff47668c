"""The agent on disk: its files, its card, whether to trust it, and where to find one."""
