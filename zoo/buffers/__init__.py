"""What was experienced: rollouts for on-policy algorithms, replay for off-policy ones."""
