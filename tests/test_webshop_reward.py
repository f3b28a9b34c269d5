"""seed/envs/webshop_reward.py against the worked cases, and the loopholes that it says it has."""
import pytest
from conftest import spec_cases, spec_params
from webshop_fakes import as_options, product

from seed.envs.webshop_products import Goal
from seed.envs.webshop_reward import COLOURS, score, type_score


@pytest.mark.parametrize("case", spec_params("cases_webshop_reward.json", "cases"))
def test_worked_rewards(case):
    def as_product(data, nouns, price=0.0):
        return product(data["asin"], name=data["name"], query=data["query"], product_category=data["product_category"], price=price,
                       nouns=tuple(nouns), description=data.get("Description", ""), bullets=tuple(data.get("BulletPoints", ())),
                       attributes=tuple(data.get("Attributes", ())))
    wanted, options = case["goal"], as_options(case["goal"]["goal_options"])
    goal = Goal("", "", as_product(wanted, case["nouns_goal"]), tuple(wanted["attributes"]), options, wanted["price_upper"])
    got = score(as_product(case["product"], case["nouns_purchased"], case["price"]), case["options"], goal)
    parts = len(goal.attributes) + len(options) + 1
    got |= dict(w_price=1 / parts, w_att=len(goal.attributes) / parts, w_option=len(options) / parts)
    got |= dict(r_att=got["num_attr_matches"] / len(goal.attributes)) if goal.attributes else {}
    got |= dict(r_option=got["num_option_matches"] / len(options)) if options else {}
    for name, value in case["expected"].items():
        assert got[name] == pytest.approx(value, abs=1e-12), name
    assert (got["reward"] == 1.0) == (case["expected"]["reward"] == 1.0)


def test_the_worked_colours():
    assert COLOURS == spec_cases("cases_webshop_colours.json")["colours"]


def earned(goal_options, chosen, **bought):
    goal = Goal("", "", product(), ("loud",), as_options(goal_options), 20.0)
    return score(product(**{"attributes": ("loud",), **bought}), chosen, goal)["reward"]


@pytest.mark.parametrize("wanted, chosen, reward", [
    ({"size": "6", "color": "red"}, {"size": "6", "color": "red"}, 1.0),
    ({"size": "6", "color": "red"}, {"size": "6"}, 3 / 4),
    ({"size": "6", "color": "red"}, {}, 2 / 4),
    ({}, {"size": "6"}, 1.0),                                   # nothing is wanted: nothing can be missing
    ({"size": "6.5"}, {"size": "6"}, 1.0),                      # the loopholes
    ({"size": "x-large"}, {"size": "large"}, 1.0),
    ({"size": "pack of 2"}, {"size": "pack of 1"}, 1.0),
    ({"size": "6"}, {"color": "size"}, 1.0),                    # a value equal to the option's name
    (["standard"], {"color": "standard"}, 1.0),                 # a human goal's value: both become tan
    ({"color": "standard"}, {"color": "standard"}, 2 / 3),      # a synthetic goal's pair keeps its words
    ({"color": "navy blue"}, {"color": "blue"}, 1.0),
    ({"size": "8 ounce"}, {"size": "12 ounce"}, 2 / 3)])
def test_options_by_hand(wanted, chosen, reward):
    assert earned(wanted, chosen) == pytest.approx(reward)


@pytest.mark.parametrize("bought, reward", [
    (dict(price=20.0), 1.0), (dict(price=20.01), 2 / 3),                                            # at the limit, above it
    (dict(attributes=("louder",), bullets=("Very", "LOUD lid")), 1.0),                              # found in any feature
    (dict(attributes=(), description="Not quiet"), 2 / 3),
    (dict(nouns=("mug",)), 0.0),                                                                    # the same kind, no shared noun
    (dict(nouns=("mug", "kettle"), query="mugs", product_category="Other › Kitchen"), 1.0),         # by its title alone
    (dict(query="mugs", product_category="Kitchen › Home › X", nouns=("kettle",)), 1.0)])
def test_products_by_hand(bought, reward):
    assert earned({"size": "6"}, {"size": "6"}, **bought) == pytest.approx(reward)


def test_r_type_by_hand():
    goal = product(nouns=tuple("abcdefghijk") + ("k",) * 9)                                         # 20 nouns, 11 different ones
    r_type = lambda nouns, **changes: type_score(product(nouns=nouns, **changes), goal)["r_type"]
    other = dict(query="mugs", product_category="Home › X")                                         # one shared part is not enough
    assert [r_type(tuple("abcde"[:n])) for n in range(4)] == [0.0, 0.1, 1.0, 1.0]                   # shares 0, .05, .1, .15
    assert [r_type(tuple("abcde"[:n]), **other) for n in range(6)] == [0.0, 0.1, 0.5, 0.5, 0.5, 1.0]
    assert type_score(product(**other), product(nouns=()))["r_type"] == 0.5                         # no noun: 0.2, not above 0.2
    assert score(product(**other), {}, Goal("", "", product(nouns=()), (), (), 30.0))["reward"] == 0.5
