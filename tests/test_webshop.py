"""seed/envs/webshop.py: the worked transcripts, replies, pages, purchases, opening the shop, and a rollout."""
import dataclasses
import random

import pytest
from conftest import spec_cases, spec_params
from webshop_fakes import as_options, config, made, made_root, row, worked, write_shop  # noqa: F401  (some are fixtures)

from seed.analyzer import analyzer_prompt
from seed.envs import open_env, webshop, webshop_made
from seed.envs.base import GameError
from seed.envs.webshop import WORDS, WebShop, page_texts, parse_action, search_text
from seed.envs.webshop_made import CATEGORIES
from seed.envs.webshop_products import PRODUCTS, Goal
from seed.library import Library
from seed.trajectory import Task


def play(env, task, actions, slot=0):
    turn = env.reset(slot, task)
    for action in actions:
        turn = env.step(slot, action)
    return turn


# --- worked cases

def test_what_is_searched_is_as_in_the_worked_index(worked):
    texts = {text["id"]: text["contents"] for text in spec_cases("cases_bm25.json")["documents"]}
    shared = set(texts) & set(worked.products)
    assert shared and {asin: search_text(worked.products[asin]) for asin in shared} == {asin: texts[asin] for asin in shared}


@pytest.mark.parametrize("episode", spec_params("cases_webshop_pages.json", "episodes"))
def test_worked_transcripts(episode, worked):
    wanted = episode["goal"]
    worked.by_id["worked"] = Goal("worked", wanted["instruction_text"], worked.products[wanted["asin"]], tuple(wanted["attributes"]),
                                  as_options(wanted["goal_options"]), wanted["price_upper"])
    turn = worked.reset(1, Task("webshop", "worked", "fashion"))
    assert turn.description == episode["task_description"]
    for expected in (episode["reset"], *episode["steps"]):
        if "action" in expected:
            turn = worked.step(1, expected["action"])
            assert (turn.reward, turn.done, turn.won) == (expected["reward"], expected["done"], expected["won"])
            assert turn.score == pytest.approx(expected["task_score"])
        if expected["obs"] is not None:
            assert (turn.observation, list(turn.admissible)) == (expected["obs"], expected["available_actions"]), expected
            top = [*["WebShop"] * (worked.visits[1].page == "search"), "Instruction:", episode["task_description"]]
            assert expected["raw_obs"] == " [SEP] ".join(top + page_texts(worked.visits[1]))


@pytest.mark.parametrize("case", spec_params("cases_webshop_pages.json", "parse"))
def test_worked_actions(case):
    name, argument = parse_action(case["action"])
    assert [name, argument] == [case["parsed"][0], case["parsed"][1] and case["parsed"][1].lower()]


def in_order(text):
    """Whether think opens, closes, then action opens and closes: our rule, written anew. The original looks for the tags only."""
    low, found = text.lower(), []
    for tag, where in (("<think>", text), ("</think>", text), ("<action>", low), ("</action>", low)):
        found.append(where.find(tag))
    return -1 not in found and found == sorted(found)


@pytest.mark.parametrize("case", spec_params("cases_alfworld.json", "projection"))
def test_worked_replies(case):
    reply = WORDS.read(case["text"], ())
    has_both = "<action>" in case["text"].lower() and "</action>" in case["text"].lower()
    if in_order(case["text"]) or not has_both:
        assert reply.action == case["webshop_action"].strip() and reply.valid == bool(case["webshop_valid"])
    elif case["text"].lower().find("<action>") < case["text"].lower().find("</action>"):
        assert reply.action == case["webshop_action"] and not reply.valid
    else:
        assert not reply.valid


@pytest.mark.parametrize("text, action", [
    ("<think>a</think></action>click[7]<action>", "/action>click[7]<action>"[-20:]),    # reversed: the original passes "" on, well formed
    ("<think>a <action>click[7]</action></think>", "click[7]"),                         # inside think
    ("<action>click[7]</action><think>a</think>", "click[7]"),                          # before think
    ("<think>a</think><action><action>click[7]</action>", "<action>click[7]")])         # nested
def test_where_our_parser_is_stricter(text, action):
    reply = WORDS.read(text, ("click[7]",))
    assert reply.action == action and not reply.valid


# --- replies and actions

@pytest.mark.parametrize("action, admissible", [
    ("click[7]", True), ("Click[7] please", True), ("click[8]", False), ("click [7]", False), ("please click[7]", False),
    ("search[kettle]", True), ("search[]", False), ("search", False), ("search[<r>]", True), ("buy", False), ("", False),
    ("click[a [b]]", False)])
def test_which_replies_do_something(action, admissible):
    reply = WORDS.read(f"<think>x</think><action>{action}</action>", ("click[7]", "click[a [b]]"))
    assert reply.valid and reply.admissible == admissible


def test_nothing_raises_on_any_text(made):
    rng, pieces = random.Random(0), ["<think>", "</think>", "<action>", "</action>", "search", "click", "[", "]", "<a> leather", "<r>",
                                     "<c>", "\n", "buy now", "next >", "< prev", "b", "é", "去", "_" * 50, "'s", ""]
    made.reset(0, made.tasks("train")[0])
    for _ in range(2000):
        text = "".join(rng.choice(pieces) for _ in range(rng.randint(0, 8)))
        turn = made.step(0, WORDS.read(text, ()).action)
        assert not turn.done and turn.admissible


def test_random_clicks_always_lead_to_a_page_that_can_be_left(made):
    rng, seen, turn = random.Random(1), set(), made.reset(0, made.tasks("train")[1])
    for _ in range(1500):
        action = rng.choice([a for a in turn.admissible if a != "click[buy now]"])
        turn = made.step(0, "search[floor rug]" if action.startswith("search") else action)
        seen.add(turn.observation.split(" [SEP] ")[-1])
        assert turn.score == turn.reward == 0 and len(turn.admissible) == len(set(turn.admissible)) >= 2
    assert {"'Search'", "'Buy Now'", "'< Prev'"} <= seen


def test_what_is_not_on_the_page_changes_nothing(made):
    task = made.tasks("train")[0]
    start = made.reset(0, task)
    for action in ("hello", "", "search[]", "click[buy now]", "click[search]", "click[b0000]", "Search[rug]", "search[\n]"):
        assert dataclasses.replace(made.step(0, action), description=start.description) == start, action
    item = play(made, task, ["search[rug]", f"click[{made.index.search('rug')[0][0].lower()}]"])
    for action in ("click[search]", "click[next >]", "click[no such value]", "click[Instruction:]"):
        assert made.step(0, action) == item


# --- pages

@pytest.fixture
def small(tmp_path):
    """Thirteen kettles; the first has two options that share a value and all kinds of texts."""
    rows = [row(f"B0AAAA{n:04}", name=f"Kettle {n}", query="kettles") for n in range(13)]
    options = {"Size": [{"value": "One"}, {"value": " Black / White"}], "Fit": [{"value": "one"}, {"value": "Wide"}], "Gone": None}
    rows[0] |= dict(customization_options=options, full_description="", small_description=["Big ", "", "Loud"])
    known = {"B0AAAA0000": {"attributes": ["loud"], "instruction": "Find me kettle", "instruction_attributes": ["loud"]}}
    return WebShop(write_shop(tmp_path / "small", rows, known), 1)


def test_pages_of_results(small):
    task = small.tasks("train")[0]
    first, second, third = (play(small, task, ["search[kettle]"] + ["click[next >]"] * n) for n in range(3))
    assert "Page 1 (Total results: 13)" in first.observation and "< Prev" not in first.observation and len(first.admissible) == 12
    assert second.admissible[:3] == ("click[back to search]", "click[< prev]", "click[next >]") and len(second.admissible) == 6
    assert third.observation == "'Back to Search' [SEP] 'Page 3 (Total results: 13)' [SEP] '< Prev' [SEP] 'Next >'"
    assert play(small, task, ["search[kettle]", "click[next >]", "click[b0aaaa0012]", "click[< prev]"]) == second   # where it came from
    assert play(small, task, ["search[kettle]", "click[next >]", "search[kettle]"]) == first                        # a search starts anew


def test_options_and_sub_pages(small):
    task, to_item = small.tasks("train")[0], ["search[wide]", "click[b0aaaa0000]"]
    item = play(small, task, to_item)
    assert item.observation == (
        "'Back to Search' [SEP] '< Prev' [SEP] 'size' [SEP] 'one' [SEP] 'black  |  white' [SEP] 'fit' [SEP] 'one' [SEP] 'wide' [SEP] "
        "'Kettle 0' [SEP] 'Price: $17.5' [SEP] 'Rating: N.A.' [SEP] 'Description' [SEP] 'Features' [SEP] 'Reviews' [SEP] 'Buy Now'")
    assert item.admissible[-3:] == ("click[one]", "click[black  |  white]", "click[wide]")
    assert small.step(0, "click[black | white]") == item and small.visits[0].chosen == {}       # the blanks are part of it
    assert small.step(0, "click[black  |  white]") == item and small.step(0, "click[one]") == item
    assert small.visits[0].chosen == {"size": "black  |  white", "fit": "one"}                  # a value of two options: of the last
    assert small.step(0, "click[wide]") == item and small.visits[0].chosen["fit"] == "wide"     # replaced
    assert small.step(0, "click[features]").observation == "'Back to Search' [SEP] '< Prev' [SEP] 'Big' [SEP] 'Loud'"
    assert small.step(0, "click[< prev]") == item and len(small.visits[0].chosen) == 2          # kept
    for page in ("description", "reviews"):                                                     # nothing there
        assert small.step(0, f"click[{page}]").observation == "'Back to Search' [SEP] '< Prev'"
        small.step(0, "click[< prev]")
    for leave in (["click[< prev]"], ["search[wide]"], ["click[back to search]", "search[wide]"]):
        play(small, task, to_item + ["click[wide]"] + leave + ["click[b0aaaa0000]"])
        assert small.visits[0].product.asin == "B0AAAA0000" and small.visits[0].chosen == {}    # cleared
    assert play(small, task, to_item + ["click[description]", "click[back to search]"]).observation == "'Search'"


def test_buying_ends_the_episode_and_shows_no_other_task(small):
    goal = next(goal for goal in small.by_id.values() if dict(goal.options) == {"fit": "wide", "size": "one"})
    task = Task("webshop", goal.id, "garden")
    turn = play(small, task, ["search[wide]", "click[b0aaaa0000]", "click[wide]", "click[buy now]"])
    assert (turn.done, turn.won, turn.reward) == (True, False, 0.0) and turn.score == pytest.approx(3 / 4)
    assert turn.observation == "Bought B0AAAA0000 (fit: wide) for $17.5." and turn.admissible == ()
    with pytest.raises(GameError, match="no open episode"):
        small.step(0, "search[wide]")
    # The value that both options have goes to `fit`; the reward compares values, not names, and `one` passes for (size, one).
    turn = play(small, task, ["search[wide]", "click[b0aaaa0000]", "click[one]", "click[buy now]"])
    assert turn.score == pytest.approx(3 / 4)
    # Almost everything is not success: 299 of 301.
    small.by_id[goal.id] = dataclasses.replace(goal, attributes=("loud",) * 297 + ("quiet",))
    turn = play(small, task, ["search[wide]", "click[b0aaaa0000]", "click[wide]", "click[one]", "click[buy now]"])
    assert 0.99 < turn.score < 1 and (turn.done, turn.won, turn.reward) == (True, False, 0.0)
    with pytest.raises(GameError, match="no-such-goal"):
        small.reset(0, Task("webshop", "no-such-goal", "garden"))


# --- opening the shop

def test_a_scripted_customer_reaches_made_goals(made):
    """Searches the goal's words, looks through the pages for the product that the goal was made from, clicks its options, buys it."""
    steps = []
    for task in [task for split in made.splits() for task in made.tasks(split)][::8]:
        goal = made.by_id[task.id]
        found = f"click[{goal.product.asin.lower()}]"
        actions = [f"search[{' '.join([goal.product.instruction, *dict(goal.options).values()])}]"]
        while found not in play(made, task, actions).admissible:
            actions.append("click[next >]")
            assert len(actions) < 10, goal.text
        actions += [found, *(f"click[{value}]" for _, value in goal.options), "click[buy now]"]
        turn = play(made, task, actions)
        assert (turn.won, turn.score, turn.reward, turn.done) == (True, 1.0, 10.0, True)
        steps.append(len(actions))
    assert max(steps) <= 15 and len(steps) == 70


def test_open_env_makes_the_shop_once_and_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(webshop, "CACHE", tmp_path)
    env = open_env(config())
    assert capsys.readouterr().err.splitlines() == [f"products: made-up ones, in {env.root} (no downloaded WebShop data is used)"]
    assert env.slots == 8 and [len(env.tasks(split)) for split in env.splits()] == [20, 10, 10] and len(list(tmp_path.iterdir())) == 1
    stamp = (env.root / PRODUCTS).stat().st_mtime_ns
    assert open_env(config("auto")).root == env.root and (env.root / PRODUCTS).stat().st_mtime_ns == stamp
    assert "made earlier" in capsys.readouterr().err
    write_shop(tmp_path / "webshop", [row()])                                             # downloaded data is taken by itself
    assert open_env(config("auto")).root == tmp_path / "webshop" and open_env(config("made")).root == env.root
    assert f"products: 1 in {tmp_path / 'webshop'}, synthetic instructions" in capsys.readouterr().err


def test_a_half_written_shop_is_not_taken_for_a_whole_one(tmp_path, monkeypatch):
    monkeypatch.setattr(webshop, "CACHE", tmp_path)

    def broken(folder, seed):
        folder.mkdir()
        raise KeyboardInterrupt
    monkeypatch.setattr(webshop_made, "make_products", broken)
    with pytest.raises(KeyboardInterrupt):
        open_env(config())
    monkeypatch.undo()
    monkeypatch.setattr(webshop, "CACHE", tmp_path)
    assert len(open_env(config()).products) == 1000


def test_the_skill_library_has_a_section_for_every_category(made):
    library = Library("webshop")
    assert set(library.sections) == {"general", *CATEGORIES}
    assert all(library.skill(task) for task in made.tasks("train"))


def test_a_short_rollout(made):
    from fakes import random_policy
    from seed.prompts import render
    from seed.rollout import rollout
    policy, tasks = random_policy(), made.tasks("train")[:2]
    episodes = [(task, group, copy) for group, task in enumerate(tasks) for copy in range(2)]
    trajectories, crashed = rollout(policy, made, episodes, "seed", max_turns=3, history_length=2, temperature=1.0, max_prompt_tokens=2048,
                                    max_reply_tokens=8, batch_tokens=16384)
    assert not crashed and len(trajectories) == 4
    for trajectory in trajectories:
        goal = made.by_id[trajectory.task.id]
        assert len(trajectory.steps) == 3 and not trajectory.success and trajectory.task.description == goal.text
        text = render(trajectory.steps[2].context)
        assert text.startswith(WORDS.head + goal.text) and text.endswith(WORDS.instruction)
        assert "[Observation 1: ''Search'', Action 1: '" in text and "'search[<your query>]'\n 'click[search]'" in text
        assert goal.text in analyzer_prompt(trajectory)[0] and WORDS.analysis in analyzer_prompt(trajectory)[0]
