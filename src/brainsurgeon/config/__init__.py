"""The configuration: models, loading, and the settings in force."""

from brainsurgeon.config.loading import config_path, default_state_dir, load, user_config
from brainsurgeon.config.settings import RootSettings, RootTable, ScheduleSettings, Settings

__all__ = [
    "RootSettings", "RootTable", "ScheduleSettings", "Settings", "config_path", "default_state_dir",
    "load", "user_config",
]  # fmt: skip
