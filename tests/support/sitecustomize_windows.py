"""Removes what Windows lacks: a module that Python imports at its start if it is called `sitecustomize`.

The modules stay for other packages, since Python itself needs them on Linux.
"""

import builtins
import os
import signal

MISSING_MODULES = ("fcntl", "resource")
MISSING_NAMES = {
    signal: ("SIGALRM", "SIGHUP", "SIGQUIT", "SIGBUS", "setitimer", "pthread_kill"),
    os: ("geteuid", "O_DIRECTORY", "O_NOFOLLOW"),
}

plain_import = builtins.__import__


def import_module(name, globals=None, locals=None, fromlist=(), level=0):
    if name in MISSING_MODULES and (globals or {}).get("__name__", "").startswith("relcrf"):
        raise ImportError(f"there is no {name} on Windows")
    return plain_import(name, globals, locals, fromlist, level)


builtins.__import__ = import_module
for module, names in MISSING_NAMES.items():
    for name in names:
        delattr(module, name)
