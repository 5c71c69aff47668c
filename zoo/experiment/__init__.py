"""Everything around learning: evaluation, logging, checkpoints and the run's folder."""
