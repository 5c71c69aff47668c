"""Taking the working folder off the import path; nothing is imported here but what Python has already.

It comes before every other import of a command: a file beside an unpacked agent may be called like any of
them.
"""

import os
import sys


def forget_working_folder() -> None:
    """Take off the import path what Python has put there for ``-m`` and ``-c``: the working folder.

    ``-m`` puts its path first, ``-c`` an empty text; with ``-P`` neither is there. Once is enough: another
    path to the same folder is one that the user has asked for.
    """
    if not getattr(forget_working_folder, "is_done", False):
        is_module = getattr(sys.modules.get("__main__"), "__spec__", None) is not None
        is_safe = getattr(sys.flags, "safe_path", False)
        if is_module and not is_safe and os.path.realpath(sys.path[0]) == os.path.realpath("."):
            del sys.path[0]
    sys.path[:] = [entry for entry in sys.path if entry]
    forget_working_folder.is_done = True  # type: ignore[attr-defined]
