"""Buffers of transitions: rollouts for on-policy algorithms, replay for off-policy ones."""
