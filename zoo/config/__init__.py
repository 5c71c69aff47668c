"""Configuration: values declared once, the Hydra tree around them, and composing both into one experiment."""
