"""The configuration: models, loading, and the settings in force."""

from brainsurgeon.config.loading import config_path, default_state_dir, load
from brainsurgeon.config.settings import (
    ArchiveTable,
    BudgetTable,
    PriceTable,
    ProfileTable,
    RootTable,
    RuleTable,
    Settings,
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
