"""Every class that can stand in a saved model gives back every argument of its constructor."""

import inspect
from importlib import import_module
from pathlib import Path

import keras
import pytest

import jobi_tf
from jobi_tf.models.scorers import SCORERS

# Numbers that float32 holds exactly, none of them a default.
CASES = {
    "JoBi": {
        "num_entities": 7,
        "num_relations": 3,
        "dim": 5,
        "scorer": "simple",
        "joint": False,
        "reciprocal": True,
        "regularizers": ["l2"],
        "entity_dropout": 0.5,
        "relation_dropout": 0.25,
        "entity_initializer": "zeros",
        "relation_initializer": "ones",
        "freeze_entities": True,
        "precision": "bfloat16",
        "table_dtype": "bfloat16",
        "seed": 4,
        "name": "mine",
    },
    **{cls.__name__: {} for cls in SCORERS.values()},
    "DURA": {"weight": 0.5},
    "L2": {"weight": 0.5},
    "N3": {"weight": 0.5, "pair_weight": 0.25},
    "RelationPrediction": {"weight": 0.5},
    "FullSoftmax": {"label_smoothing": 0.25, "name": "mine", "reduction": "sum"},
    "LazyAdagrad": {"learning_rate": 0.25, "initial_accumulator_value": 0.5, "epsilon": 0.125, "name": "mine"},
    "LazyAdam": {"learning_rate": 0.25, "beta_1": 0.5, "beta_2": 0.75, "epsilon": 0.125, "name": "mine"},
    "RowAdagrad": {"learning_rate": 0.25, "initial_accumulator_value": 0.5, "epsilon": 0.125, "name": "mine"},
    "PairCrossentropy": {"margin": 0.5, "name": "mine", "reduction": "sum"},
    "SampledLogistic": {
        "margin": 0.5,
        "adversarial_temperature": 0.25,
        "label_smoothing": 0.125,
        "name": "mine",
        "reduction": "sum",
    },
    "SampledMargin": {"margin": 0.5, "name": "mine", "reduction": "sum"},
    "SampledSoftmax": {"label_smoothing": 0.25, "name": "mine", "reduction": "sum"},
}


def registered() -> dict[str, type]:
    root = Path(jobi_tf.__file__).parent
    for path in root.rglob("*.py"):
        if "register_keras_serializable(" in path.read_text(encoding="utf-8"):
            import_module(".".join(("jobi_tf", *path.relative_to(root).with_suffix("").parts)))
    everything = keras.saving.get_custom_objects().items()
    return {name.removeprefix("jobi_tf>"): cls for name, cls in everything if name.startswith("jobi_tf>")}


def test_each_class_has_a_case():
    assert registered().keys() == CASES.keys()


@keras.saving.register_keras_serializable("tests")
class Tempered(jobi_tf.SampledSoftmax):
    def __init__(self, temperature: float, **kwargs):
        super().__init__(**kwargs)
        self.temperature = temperature


@keras.saving.register_keras_serializable("tests")
class Weak(jobi_tf.N3):
    def __init__(self):
        super().__init__(0.25)


@keras.saving.register_keras_serializable("tests")
class Mine(jobi_tf.JoBi):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)


@keras.saving.register_keras_serializable("tests")
class Doubled(Mine):
    def __init__(self, half: int, **kwargs):
        super().__init__(dim=2 * half, **kwargs)

    def get_config(self):
        config = super().get_config()
        return config | {"half": config.pop("dim") // 2}


@pytest.mark.parametrize(
    "first", [Weak(), Tempered(5.0, label_smoothing=0.25), Mine(7, 3, 4), Doubled(2, num_entities=7, num_relations=3)]
)
def test_subclasses_come_back_with_the_arguments_of_their_base(first):
    second = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(first))
    assert second.get_config() == first.get_config()
    for name in ("temperature", "label_smoothing", "weight", "num_relations", "dim"):
        assert getattr(second, name, None) == getattr(first, name, None)


@pytest.mark.parametrize("name", CASES)
def test_each_argument_comes_back(name):
    cls, case = registered()[name], CASES[name]
    for argument in inspect.signature(cls).parameters.values():
        if argument.kind is not argument.VAR_KEYWORD:
            assert case[argument.name] != argument.default
    first = cls(**case)
    second = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(first))
    assert type(second) is cls
    assert second.get_config() == first.get_config()
    for argument, value in case.items():
        if not isinstance(value, str | list):
            assert second.get_config()[argument] == value
