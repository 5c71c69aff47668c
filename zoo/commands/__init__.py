"""The verbs of the command line, one file each, with a function ``run(config)`` that reads like a recipe."""
