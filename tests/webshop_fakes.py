"""Small shops for the tests of seed/envs/webshop*.py; the fixtures are imported where they are used."""
import json
from types import SimpleNamespace

import pytest
from conftest import spec_cases

from seed.envs.webshop import WebShop
from seed.envs.webshop_made import make_products
from seed.envs.webshop_products import INSTRUCTIONS, PRODUCTS, Product


def product(asin="B1", **changes) -> Product:
    usual = dict(name="Kettle", category="garden", query="kettles", product_category="Home › Kitchen", price=20.0, price_tag="$20.0",
                 description="", bullets=(), attributes=(), options={}, nouns=("kettle",))
    return Product(asin, **{**usual, **changes})


def as_options(options) -> tuple:
    return tuple(options.items() if isinstance(options, dict) else options)


def row(asin="B0AAAA0001", **changes) -> dict:
    """A product as the file has it."""
    return {"asin": asin, "name": "Glass Kettle", "category": "garden", "query": " Kettles ", "product_category": "A › B",
            "pricing": "$17.50", "full_description": "It boils.", "small_description": ["Lid "], "customization_options": "", **changes}


def write_shop(folder, rows, known=None, **others):
    folder.mkdir(exist_ok=True)
    (folder / PRODUCTS).write_text(json.dumps(rows))
    (folder / INSTRUCTIONS).write_text(json.dumps(known or {}))
    for name, data in others.items():
        (folder / f"{name}.json").write_text(json.dumps(data))
    return folder


@pytest.fixture(scope="module")
def worked(tmp_path_factory):
    """The shop of the worked cases."""
    folder = tmp_path_factory.mktemp("worked") / "shop"
    files = [spec_cases(f"fx_{name}.json") for name in ("products", "attributes", "human")]
    return WebShop(write_shop(folder, *files[:2], items_human_ins=files[2]), 2)


@pytest.fixture(scope="module")
def made_root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "shop"
    make_products(folder, 0)
    return folder


@pytest.fixture(scope="module")
def made(made_root):
    return WebShop(made_root, 4, (160, 200, 200))


def config(data="made", **changes):
    usual = dict(env="webshop", data=data, tasks_per_update=2, group_size=4, train_games=20, seen_games=10, unseen_games=10)
    return SimpleNamespace(**{**usual, **changes})
