"""Recipes: named settings that take the place of the defaults."""

from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, field_validator

from jobi_tf.training.config import SettingsFile, TrainConfig

AUTO = "auto"


class Recipe(SettingsFile):
    """A YAML file with settings; those that come with the library are in `jobi_tf/training/recipes`."""

    built_in_folder: ClassVar[Path] = Path(__file__).parent / "recipes"

    description: str
    settings: dict[str, Any] = Field(min_length=1)

    @field_validator("settings")
    @classmethod
    def _fields_of_config(cls, settings: dict[str, Any]) -> dict[str, Any]:
        for name in ("dataset", "recipe", "run_dir"):
            if name in settings:
                raise ValueError(f"expected no {name} in a recipe")
        config = TrainConfig.create({"dataset": "any"} | settings, "")
        config.check()
        return {name: getattr(config, name) for name in settings}


def with_recipe(config: TrainConfig) -> TrainConfig:
    """Returns the settings with those of their recipe, if they name one; settings that were given win.

    Settings of the recipe that have no effect beside the given ones are left out.

    Raises:
        UsageError: there is no such recipe, or it is invalid.
    """
    if config.recipe in (None, AUTO):
        return config
    given = config.model_dump(exclude_unset=True)
    return overridden(Recipe.read(config.recipe).settings, given)


def overridden(settings: dict[str, Any], given: dict[str, Any]) -> TrainConfig:
    """Returns `settings` with `given` ones in their place, without those that have no effect beside the given ones."""
    config = TrainConfig.create(settings | given)
    idle = config.without_effect().keys() - given.keys()
    return TrainConfig.create({name: x for name, x in (settings | given).items() if name not in idle})
