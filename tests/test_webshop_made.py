"""seed/envs/webshop_made.py: the same shop in every process, whose goals can all be reached, by the right purchase only."""
import itertools

from conftest import same_in_two_processes
from webshop_fakes import made, made_root  # noqa: F401  (fixtures)

from seed.envs.webshop_made import CATEGORIES
from seed.envs.webshop_products import read_goals
from seed.envs.webshop_reward import same, score


def test_the_made_shop_is_the_same_in_every_process(tmp_path):
    code = ("import hashlib, sys; from pathlib import Path; from seed.envs.webshop import WebShop\n"
            "from seed.envs.webshop_made import make_products\n"
            "root = Path(sys.argv[1]); make_products(root, 0); env = WebShop(root, 1, (160, 200, 200)); tasks = env.tasks('train')\n"
            "print([hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(root.iterdir())], [task.id for task in tasks])\n"
            "for task in tasks[:20]:\n"
            "    print(env.reset(0, task), env.step(0, f'search[{env.by_id[task.id].text}]'), env.step(0, 'click[next >]'))")
    assert same_in_two_processes(code, tmp_path / "1", tmp_path / "2").count("Page 2") == 20


def test_every_made_goal_can_be_reached_and_no_value_passes_for_another(made_root, made):
    goals = read_goals(made_root, list(made.products.values()))
    assert len(made.products) == 1000 and {p.category for p in made.products.values()} == set(CATEGORIES)
    for goal in goals:
        right = dict(goal.options)
        assert score(goal.product, right, goal)["reward"] == 1.0
        for name, value in right.items():
            for other in set(goal.product.options[name]) - {value}:
                assert score(goal.product, {**right, name: other}, goal)["reward"] < 1.0, (goal.text, other)
    for _, _, attributes in CATEGORIES.values():
        assert not any(same(a, b) for a, b in itertools.combinations(attributes.split(", "), 2))
