"""The command line of the scripts: options are written out, and a wrong one is answered with what was probably meant."""
import argparse
import difflib

from seed.errors import UserError

OTHER_NAMES = {"--lambda": "--opd-coef", "--beta": "--gate-beta", "--lr": "--learning-rate"}  # the paper's and other programs'


def meant(word: str, known: list[str]) -> str | None:
    """What was probably meant by a word that is no option."""
    if not word.startswith("-"):  # a value without its option
        return next((f"{option} {word}" for option in ("--run", "--env") if option in known), None)
    near = [OTHER_NAMES[word]] if OTHER_NAMES.get(word) in known else difflib.get_close_matches(word, known, 1, cutoff=0.7)
    return near[0] if near else None


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line, and a guess at what was meant."""

    def __init__(self, doc: str):
        super().__init__(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)

    def error(self, message):
        raise UserError(f"{message} (--help lists all options)")

    def parse_args(self, args=None, namespace=None):
        values, unknown = self.parse_known_args(args, namespace)
        if unknown:
            known = [option for action in self._actions for option in action.option_strings]
            word = unknown[0].split("=")[0]
            option = meant(word, known)
            self.error(f"unknown option {word}" + (f", did you mean {option}?" if option else ""))
        return values
