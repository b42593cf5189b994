"""The configuration: models (`settings`, `tables`), loading, origins and reference."""

from brainsurgeon.config.loading import config_path, default_state_dir, load
from brainsurgeon.config.settings import Settings
from brainsurgeon.config.tables import (
    ArchiveTable,
    BudgetTable,
    PriceTable,
    ProfileTable,
    RootTable,
    RuleTable,
    SignalTable,
    UseTable,
)

__all__ = [
    "ArchiveTable",
    "BudgetTable",
    "PriceTable",
    "ProfileTable",
    "RootTable",
    "RuleTable",
    "Settings",
    "SignalTable",
    "UseTable",
    "config_path",
    "default_state_dir",
    "load",
]
