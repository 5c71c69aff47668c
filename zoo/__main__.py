"""`python -m zoo` is the command `zoo`."""

import os
import sys

if not getattr(sys.flags, "safe_path", False) and os.path.realpath(sys.path[0] or ".") == os.getcwd():
    # Python puts the working folder first, whose files would stand for libraries of the same name.
    del sys.path[0]

from zoo.cli import main

if __name__ == "__main__":
    main()
