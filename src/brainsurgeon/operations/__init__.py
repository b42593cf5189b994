"""The operations of the commands and the daemon. They return values and print nothing."""

from typing import TYPE_CHECKING

from brainsurgeon import import_at_first_use

if TYPE_CHECKING:
    from brainsurgeon.operations import (  # noqa: F401, I001
        archive, doctor, estimate, evidence, history, hook, init, log_check, relieve, report,
        restore, retention, scan, sessions, set_extractable, show, signals, status, store,
    )  # fmt: skip
else:
    __getattr__ = import_at_first_use(__name__)
