"""Who may join the algorithms, and how each refusal helps."""

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

import pytest
from line_env import LineEnv

import statewise
from statewise.algos import (
    ALGORITHMS,
    Algorithm,
    Batch,
    CostSettings,
    Metrics,
    Settings,
    TrustRegionAlgorithm,
    TrustRegionSettings,
    get_algorithm,
    register_algorithm,
)
from statewise.algos.cpo import Cpo, CpoSettings
from statewise.algos.trpo import Trpo
from statewise.settings import number
from statewise.training.collect import Collector


@dataclass(frozen=True)
class MineSettings(CostSettings):
    """Without a trust region."""

    price: float = number(1.0, least=0)
    """Of a unit of cost."""


class Mine(Algorithm):
    """The smallest algorithm: it fits its critics."""

    name = "mine"
    settings_class: Any = MineSettings

    def update_networks(self, batch: Batch) -> Metrics:
        return self.fit_critics(batch)


def variant(base: type = Mine, **parts: Any) -> Any:
    """A class like `base`, with other parts."""
    return type("Variant", (base,), parts)


def test_a_decorated_class_comes_back_and_is_found_by_its_name() -> None:
    assert register_algorithm(Mine) is Mine
    assert get_algorithm("mine") is get_algorithm("MINE") is statewise.get_algorithm("mine") is Mine
    assert statewise.register_algorithm is register_algorithm and statewise.Algorithm is Algorithm


def test_an_algorithm_without_a_trust_region_has_no_settings_of_one_and_learns() -> None:
    names = {f.name for f in dataclasses.fields(MineSettings)}
    region = {f.name for f in dataclasses.fields(TrustRegionSettings)}
    assert not names & (region - {f.name for f in dataclasses.fields(Settings)})
    assert not hasattr(Mine, "target_kl")
    env = LineEnv(8)
    algo = Mine(env.spec, MineSettings(hidden=(4,), critic_iterations=2), 3, 0)
    collector = Collector(env, algo, 0)
    algo.measure_inputs(collector.collect(16)[0])
    metrics = algo.update(collector.collect(16)[0])
    assert metrics["critic/cost_value_loss"] > 0 and metrics["update/skipped"] == 0


def test_an_algorithm_without_a_title_is_called_by_its_name() -> None:
    register_algorithm(Mine)
    assert Mine.title == "mine"
    assert register_algorithm(variant(name="other", title="Other")).title == "Other"
    # The title of another algorithm is not inherited: reports would mix the two up.
    assert register_algorithm(variant(Trpo, name="third")).title == "third"


def test_the_nine_have_the_titles_of_the_paper_and_ascpo_follows() -> None:
    assert [algo.title for algo in ALGORITHMS.values()] == [
        "SCPO", "TRPO", "CPO", "PCPO", "TRPO-Lagrangian", "TRPO-FAC", "TRPO-IPO", "TRPO-SL",
        "TRPO-USL", "ASCPO",
    ]  # fmt: skip


@pytest.mark.parametrize("thing", [7, "mine", Mine.__mro__[-1], lambda: None])
def test_what_is_no_algorithm_is_refused(thing: Any) -> None:
    with pytest.raises(
        ValueError, match=r"is not an algorithm: derive a class from statewise\.Algorithm"
    ):
        register_algorithm(thing)


@pytest.mark.parametrize("name", ["", None, 7, "My-Algo", "MINE", "a/b", "..", "a b", "2fast", "é"])
def test_a_name_that_names_no_folder_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"is {name!r}: give it a `name` of lower-case")):
        register_algorithm(variant(name=name))
    assert len(ALGORITHMS) == 10


def test_a_class_without_a_name_is_refused() -> None:
    nameless = type("Nameless", (Algorithm,), {"update_networks": Mine.update_networks})
    with pytest.raises(ValueError, match=r"test_registry\.Nameless is '': give it a `name`"):
        register_algorithm(nameless)


@dataclass
class Changeable:
    price: float = 1.0


class Forgotten(MineSettings):
    """Its fields are not fields, since the decorator is missing."""

    weight: float = 2.0


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        (None, "derive it from Settings"),
        (MineSettings(), "derive it from Settings"),
        (Changeable, "derive it from Settings"),
        (Forgotten, "decorate it with @dataclass(frozen=True)"),
    ],
)
def test_settings_that_are_no_frozen_dataclass_of_ours_are_refused(
    settings: Any, advice: str
) -> None:
    with pytest.raises(ValueError, match=r"the settings_class of .*Variant is") as caught:
        register_algorithm(variant(Algorithm, name="mine", settings_class=settings))
    assert str(caught.value).endswith(advice)


def test_settings_have_to_hold_what_the_algorithm_derives_from_reads() -> None:
    for base, needed in ((TrustRegionAlgorithm, TrustRegionSettings), (Cpo, CpoSettings)):
        with pytest.raises(ValueError, match=f"derive it from {needed.__name__}$"):
            register_algorithm(variant(base, name="mine", settings_class=MineSettings))


def test_an_algorithm_that_cannot_update_is_told_what_is_missing() -> None:
    parts: dict[str, Any] = {"name": "mine", "settings_class": MineSettings}
    with pytest.raises(ValueError, match=r"Variant lacks update_networks\(batch\)"):
        register_algorithm(variant(Algorithm, **parts))
    whole = variant(Algorithm, update=lambda self, rollout: {}, **parts)
    assert register_algorithm(whole) is whole


def test_a_name_that_is_taken_is_refused_with_who_has_it() -> None:
    with pytest.raises(ValueError, match=r"'scpo' is taken by statewise\.algos\.scpo\.Scpo: give"):
        register_algorithm(variant(name="scpo"))
    with pytest.raises(ValueError, match=r"'trpo' is taken by statewise\.algos\.trpo\.Trpo"):
        register_algorithm(variant(Trpo))  # it has inherited the name
    assert ALGORITHMS["scpo"].title == "SCPO"


def test_the_same_class_of_the_same_module_may_be_registered_again() -> None:
    first = register_algorithm(variant())
    again = register_algorithm(variant())  # as after a reload of its module
    assert get_algorithm("mine") is again is not first


def test_unknown_algorithms_are_answered_with_the_closest() -> None:
    with pytest.raises(ValueError, match=r"unknown algorithm 'scp'\. Did you mean scpo"):
        get_algorithm("scp")
    assert get_algorithm("TRPO-Lag") is ALGORITHMS["trpo_lag"]
