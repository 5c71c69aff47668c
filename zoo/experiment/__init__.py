"""What goes on around learning: evaluation, logging, checkpoints, and the folder in which a run is kept."""
