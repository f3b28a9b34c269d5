"""Opening an environment by its name."""


def open_env(config):
    """The environment that the configuration names, with its data found or made."""
    from seed.envs.alfworld import open_alfworld
    return {"alfworld": open_alfworld}[config.env](config)
