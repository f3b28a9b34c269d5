"""Environments by their names."""
import importlib


def open_env(config):
    """The environment that the configuration names, with its data found or made."""
    return importlib.import_module(f"seed.envs.{config.env}").open_env(config)


def expert(env: str):
    """The environment's scripted player and annotator: a module with `decide` and `hindsight`."""
    return importlib.import_module(f"seed.envs.{env}_expert")


def words(env: str):
    """What is an environment's own in the prompts (`base.Words`)."""
    return importlib.import_module(f"seed.envs.{env}").WORDS
