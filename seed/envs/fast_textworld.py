"""TextWorld's PDDL engine, made fast without changing one character that it prints.

ALFWorld's text games run on TextWorld's `PddlEnv`: a planner library (fast-downward) holds the state of the world, and a
small grammar turns state into sentences. Stock TextWorld spends nearly all of its time doing the same work again.
`apply()` replaces the functions that do, once per process, before the first environment is made:

1. The grammar strings ("You open the {r.name}. #examineReceptacle.feedback#") and its queries are parsed by a general
   parser at every step. There are a few dozen of them: parse each once.
2. A game's grammar differs from the next game's in one sentence, the task. Parse the rest once, and fill the task in.
3. Derivations deep-copy symbols and variable bindings that nobody changes. Shallow copies are enough.
4. Every step derives the text of every admissible command again, although that text depends on the command's arguments
   alone, and of these only on those that its template mentions. Derive it once per game.
5. Every query sorts the facts that it looks through. Keep them sorted until one is added or removed.
6. Loading and resetting ground the problem (from rules with variables to a list of facts and operators) twice each: once
   to play, once for the planner. Ground each problem once, and for the planner when a plan is first asked for.
7. A grounding is the same tomorrow: keep it on disk, as gzipped JSON (`Groundings`).
8. Every engine needs a private copy of the planner library, 34 MB of which all but 1 MB is debugging symbols.

`bench/alfworld_engine.py` measures both engines side by side and compares everything that they print.
"""
import copy
import functools
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
import zlib
from itertools import chain
from pathlib import Path

import fast_downward
from fast_downward.translate import pddl
from textworld.envs.pddl import logic, textgen
from textworld.logic import Rule

GAMES_IN_MEMORY = 32  # groundings and grammars kept in memory: more than the tasks of one update
TASK = re.compile(r'(Your task is to: )((?:[^"\\]|\\.)*)(")')
_state = {"applied": False}


def apply(cache: Path | None = None) -> None:
    """Patch TextWorld in this process. With `cache`, groundings are also kept as files in that folder."""
    if _state["applied"]:
        return
    _state["applied"] = True
    _parse_once()
    _copy_less()
    _derive_commands_once()
    _keep_facts_sorted()
    _ground_once(Groundings(cache) if cache else None)
    _small_library(cache)


def _parse_once():
    parse_symbols = functools.lru_cache(None)(textgen._parse_and_convert)
    textgen._parse_and_convert = lambda text, rule_name, trace=False: _shallow(parse_symbols(text, rule_name=rule_name))
    Rule.parse_conjunctive_query = staticmethod(functools.lru_cache(None)(Rule.parse_conjunctive_query))
    parse_template = functools.lru_cache(GAMES_IN_MEMORY)(logic._parse_and_convert)

    def parse_grammar(text, rule_name):
        tasks = {match[1] for match in TASK.findall(text)}
        if len(tasks) != 1:  # not ALFWorld's layout: parse it as it is
            return parse_template(text, rule_name=rule_name)
        actions, template = parse_template(TASK.sub(r"\1_\3", text), rule_name=rule_name)
        grammar = textgen.ContextSensitiveGrammar()
        grammar.update(template)
        sentence = json.loads(f'"Your task is to: {tasks.pop()}"')
        grammar._rules["task"] = [textgen.ProductionRule("task", parse_symbols(sentence, rule_name="symbols"))]
        return actions, grammar

    logic._parse_and_convert = parse_grammar


def _copy_less():
    textgen.deepcopy = _shallow
    textgen.copy_context = lambda c: {**c, "variables": dict(c["variables"]), "mapping": dict(c["mapping"])}
    logic.PddlState.facts = property(lambda state: chain.from_iterable(state._facts.values()))
    # Both ask the environment for a debugging flag at every symbol.
    textgen.check_flag = functools.lru_cache(None)(textgen.check_flag)
    logic.check_flag = functools.lru_cache(None)(logic.check_flag)


def _shallow(x):
    return [copy.copy(symbol) for symbol in x] if isinstance(x, list) else copy.copy(x)


def _derive_commands_once():
    derive = textgen.ContextSensitiveGrammar.derive

    @functools.lru_cache(None)
    def mentioned(template, names):
        return [re.search(rf"\b{re.escape(name)}\b", template) is not None for name in names]

    def derive_once(grammar, start, context={}):
        if start.startswith("#"):  # feedback: it depends on the state of the world
            return derive(grammar, start, context)
        commands = grammar.__dict__.setdefault("commands", {})
        mapping = context["mapping"]
        used = mentioned(start, tuple(placeholder.name for placeholder in mapping))
        key = (start, *(variable.name for variable, use in zip(mapping.values(), used) if use))
        if key not in commands:
            commands[key] = derive(grammar, start, context)
        return commands[key]

    textgen.ContextSensitiveGrammar.derive = derive_once


def _keep_facts_sorted():
    state = logic.PddlState
    add, remove = state.add_fact, state.remove_fact

    def facts_with_signature(self, signature):
        ordered = self.__dict__.setdefault("ordered", {})
        if signature not in ordered:
            ordered[signature] = sorted(self._facts.get(signature, ()))
        return ordered[signature]

    def change(apply_change):
        def changed(self, fact):
            self.__dict__.setdefault("ordered", {}).pop(fact.signature, None)
            apply_change(self, fact)
        return changed

    state.facts_with_signature, state.add_fact, state.remove_fact = facts_with_signature, change(add), change(remove)


def _ground_once(groundings):
    stock = fast_downward.pddl2sas

    def ground(domain, problem, optimize=False):
        argv = sys.argv  # the translator overwrites the command line of the process
        try:
            return stock(domain, problem, optimize=optimize)
        finally:
            sys.argv = argv

    to_play = functools.lru_cache(GAMES_IN_MEMORY)(groundings.wrap(ground) if groundings else ground)
    to_plan = functools.lru_cache(GAMES_IN_MEMORY)(lambda domain, problem: ground(domain, problem, optimize=True)[1])
    plan = logic.PddlState.replan

    def replan(state, infos):
        if not state.sas_replan:
            state.sas_replan = to_plan(state._logic.domain, state.pddl_problem)
            state.downward_lib.load_sas_replan(state.sas_replan.encode("utf-8"))
        return plan(state, infos)

    logic.PddlState.replan = replan
    fast_downward.pddl2sas = lambda domain, problem, verbose=False, optimize=False: (
        (None, "") if optimize else to_play(domain, problem))


class Groundings:
    """Groundings on disk: one gzipped JSON file each, named by the hash of domain and problem.

    Plain data: reading one can at worst fail, and then (a half-written or damaged file, another layout) the problem is
    grounded again and the file replaced. A disk that is full or read-only costs time, nothing else.
    """
    LAYOUT = 1

    def __init__(self, folder):
        self.folder = Path(folder)

    def wrap(self, ground):
        def cached(domain, problem):
            digest = hashlib.sha1(f"{self.LAYOUT}\n{domain}\n{problem}".encode()).hexdigest()
            path = self.folder / f"{digest}.json.gz"
            try:
                return self.decode(json.loads(gzip.decompress(path.read_bytes())))
            except (OSError, EOFError, ValueError, KeyError, TypeError, zlib.error):
                task, sas = ground(domain, problem)
                self.write(path, self.encode(task, sas))
                return task, sas
        return cached

    def write(self, path, data):
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
                file.write(gzip.compress(json.dumps(data).encode(), compresslevel=3, mtime=0))
            os.replace(file.name, path)
        except OSError:
            pass

    @staticmethod
    def encode(task, sas):
        """Of the translator's result, what `PddlState` reads: names, types, the facts at the start and the SAS text."""
        return {"types": [[t.name, list(t.supertype_names)] for t in task.types],
                "objects": [[o.name, o.type_name] for o in task.objects],
                "actions": [[a.name, [[p.name, p.type_name] for p in a.parameters]] for a in task.actions],
                "init": sorted([fact.predicate, list(fact.args)] for fact in task.init   # a set there: in any order
                               if isinstance(fact, pddl.conditions.Atom) and fact.predicate != "="),
                "sas": sas}

    @staticmethod
    def decode(data):
        named = types.SimpleNamespace
        task = named(
            types=[named(name=name, supertype_names=parents) for name, parents in data["types"]],
            objects=[named(name=name, type_name=kind) for name, kind in data["objects"]],
            actions=[named(name=name, parameters=[named(name=p, type_name=kind) for p, kind in parameters])
                     for name, parameters in data["actions"]],
            init=[pddl.conditions.Atom(predicate, args) for predicate, args in data["init"]])
        return task, data["sas"]


def _small_library(cache):
    """Engines copy the planner library to a temporary file each: copy a stripped one where `strip` is at hand."""
    stock = Path(fast_downward.interface.DOWNWARD_LIB_PATH)
    strip = shutil.which("strip")
    if not cache or not strip:
        return
    small = Path(cache) / f"libdownward-{stock.stat().st_size}.so"
    try:
        if not small.exists():
            small.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=small.parent, delete=False) as file:
                pass
            subprocess.run([strip, "-o", file.name, str(stock)], check=True, capture_output=True)
            os.replace(file.name, small)
        fast_downward.interface.DOWNWARD_LIB_PATH = str(small)
    except (OSError, subprocess.CalledProcessError):
        pass
