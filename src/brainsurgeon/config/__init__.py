"""The configuration: models, loading, and the settings in force."""

from brainsurgeon.config.loading import config_path, default_state_dir, load
from brainsurgeon.config.settings import RootTable, Settings

__all__ = ["RootTable", "Settings", "config_path", "default_state_dir", "load"]
