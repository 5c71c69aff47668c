"""The version of Zoo; the package's metadata are built from this line."""

__version__ = "0.1.0"
