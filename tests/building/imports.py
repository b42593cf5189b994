"""Every import that a command can make, made ahead in a process whose forks run commands."""

import codecs
import contextlib
import importlib
import pkgutil

import sqlite_utils.plugins

import brainsurgeon


def import_everything():
    """Import the modules of commands; daemon and server are programs of their own."""
    for module in pkgutil.walk_packages(brainsurgeon.__path__, "brainsurgeon."):
        if not module.name.endswith(("__main__", "daemon", "mcp_server")):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)
    sqlite_utils.plugins.ensure_plugins_loaded()
    codecs.lookup("ascii")
