"""Search-based question answering: ask a search engine, read passages, answer.

    python train_seed.py --env search
    python -m seed.envs.search --serve --port 8000 --corpus wiki-18.jsonl     # the Search-R1 API for this or other code

In the paper: the second text benchmark (NQ and HotpotQA to train on; those two, TriviaQA, PopQA, 2Wiki, MuSiQue and Bamboogle
to test). The task is the question. A reply holds one <search>query</search> or one <answer>text</answer>; an episode has
`max_turns` turns (paper: 4). A search shows the best TOPK passages; an answer ends the episode, and so does the last turn, where no
search is made any more. Reward r_t: exact match EM, 0 or 1.0, of the answer; 0 on every other turn. `won` is EM = 1, `score`
sub-EM, which also counts an answer that contains the right one.

What is retrieved stands in the *observation*, hence in the prompt, and is never among the action tokens: nothing trains on it.

Questions and passages (`search_data.py`): a folder with the public files, or a generated world (`search_world.py`). Splits:
`valid_seen` asks about the same world, or comes from the data sets that are trained on; `valid_unseen` has relations and
entities that training never asks for, or data sets without a training file.

How it differs from the paper's harness (Search-R1 and SkyRL's environment in verl-agent):
1. Each "<" of a passage is shown as JSON's \\u003c. The original shows passages as they are, so one that holds <answer> or a
   chat template's <|im_end|> looks like the agent's own answer or like the end of the turn.
2. Only the agent's last action is scored, and only if it is an answer. The original scores the text of all actions, where
   <search><answer>x</answer></search> counts as an answer.
3. The forms of the actions are listed, and on the last turn only that of an answer. A search there is inadmissible, not malformed.
"""
import argparse
import json
import os
import re
import string
import sys
from pathlib import Path

from seed.envs.base import CACHE, GameError, Reply, Turn, Words, new_folder, slots_for
from seed.errors import UserError, exit_cleanly
from seed.trajectory import Task

TOPK = 3
WORLD_VERSION = 1                            # raise it when the generator changes: it makes another world then
WORLD_SEED = 0                               # one world for every run's seed, as a data set is
FORMS = {"search": "<search>your query</search>", "answer": "<answer>your answer</answer>"}
BLOCKS = {kind: re.compile(f"<{kind}>(.*?)</{kind}>", re.IGNORECASE | re.DOTALL | re.ASCII) for kind in FORMS}
OPENINGS = re.compile("<(?:search|answer)>", re.IGNORECASE | re.ASCII)
NO_RESULT = "No search results found."


def read(text: str, admissible: tuple[str, ...]) -> Reply:
    """The one search or answer of a reply. Reasoning is asked for but, as in the original, not checked.

    The reply counts up to its first </search> or, without one, its first </answer>; a search goes before an answer. It is well formed
    if the whole reply, its reasoning included, has one <search> or <answer> and no other.

    >>> read("<think>Who is she?</think><search> Ada </search> and so on", tuple(FORMS.values()))
    Reply(action='<search>Ada</search>', valid=True, admissible=True)
    >>> read("<answer>b</answer><search>a</search>", tuple(FORMS.values()))
    Reply(action='<search>a</search>', valid=False, admissible=True)
    """
    end = next((tag for tag in ("</search>", "</answer>") if tag in text), "")
    head = text.split(end)[0] + end if end else text
    for kind, block in BLOCKS.items():
        if match := block.search(head):
            content = match[1].strip()
            offered = FORMS[kind] in admissible and (content != "" or kind == "answer")
            return Reply(f"<{kind}>{content}</{kind}>", len(OPENINGS.findall(text)) == 1, offered)
    return Reply("", False, False)


WORDS = Words(
    head="You are an agent who answers a question with the help of a search engine that returns passages of text.\nThe question: ",
    offer="\nThe forms of your admissible actions are: [",
    instruction=("]\nFirst reason about what is known and what is still missing, inside <think> </think> tags. Then give exactly one "
                 "action: search again for what is missing, or answer with as few words as possible and no explanation, as in "
                 "<answer>Lake Como</answer>."),
    analysis="An agent has finished an episode of answering a question with a search engine.",
    read=read)


def normalise(text: str) -> str:
    """Lower case; then without ASCII punctuation; then without a, an, the; then single blanks. The order matters.

    >>> normalise("The  U.S.A. a New-York")
    'usa newyork'
    """
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def exact_match(answer: str, golds: list[str] | str) -> bool:
    """EM: the answer is one of the right ones, after normalisation. A bare string is one right answer."""
    return normalise(answer) in [normalise(gold) for gold in _listed(golds)]


def sub_exact_match(answer: str, golds: list[str] | str) -> bool:
    """sub-EM: a right answer is part of the answer."""
    return any(normalise(gold) in normalise(answer) for gold in _listed(golds))


def _listed(golds):
    return [golds] if isinstance(golds, str) else golds


def extract_answer(text: str) -> str | None:
    """What stands in the last <answer></answer> of a text; None where there is none."""
    answers = re.findall("<answer>(.*?)</answer>", text, re.DOTALL)
    return answers[-1].strip() if answers else None


def information(passages: list[str]) -> str:
    """The observation that shows passages: JSON, in which a "<" of theirs cannot begin a tag or a special token."""
    text = "".join(f"Doc {i}: {passage.strip()}\n" for i, passage in enumerate(passages, 1)) or NO_RESULT
    return "<information>" + json.dumps({"result": text}).replace("<", "\\u003c") + "</information>"


class SearchQA:
    name = "search"

    def __init__(self, root: Path, questions: dict, search, slots: int, max_turns: int, topk: int = TOPK):
        """questions: {split: [search_data.Question]}. search: (query, topk) -> hits, see `search_retrievers`. root: names the data."""
        self.root, self.questions, self.search = Path(root), questions, search
        self.slots, self.max_turns, self.topk = slots, max_turns, topk
        self.by_id = {question.id: question for split in questions.values() for question in split}
        self.open = [None] * slots    # the question of each slot
        self.taken = [0] * slots      # turns taken

    def splits(self) -> list[str]:
        return [split for split, questions in self.questions.items() if questions]

    def tasks(self, split: str) -> list[Task]:
        if not self.questions.get(split):
            raise UserError(f"no split {split} in {self.root}, which has: {', '.join(self.splits())}")
        return sorted((Task(self.name, q.id, q.source) for q in self.questions[split]), key=lambda task: task.id)

    def reset(self, slot: int, task: Task) -> Turn:
        question = self.by_id.get(task.id)
        if question is None:
            raise GameError(f"{task.id}: no such question in {self.root}")
        self.open[slot], self.taken[slot] = question, 0
        return Turn(question.text, self._offer(slot), description=question.text)

    def step(self, slot: int, action: str) -> Turn:
        question = self.open[slot]
        self.taken[slot] += 1
        answer = extract_answer(action) if action.startswith("<answer>") else None
        if answer is not None:
            right = exact_match(answer, question.answers)
            return Turn("", (), float(right), True, right, score=float(sub_exact_match(answer, question.answers)))
        if self.taken[slot] >= self.max_turns:
            return Turn("", (), done=True)
        query = match[1].strip() if (match := BLOCKS["search"].fullmatch(action)) else ""
        if not query:
            return Turn("", self._offer(slot))
        return Turn(information([hit["document"]["contents"] for hit in self.search(query, self.topk)]), self._offer(slot))

    def _offer(self, slot) -> tuple[str, ...]:
        last = self.taken[slot] + 1 >= self.max_turns
        return (FORMS["answer"],) if last else tuple(FORMS.values())


def open_env(config) -> SearchQA:
    """The questions and the search engine that the configuration asks for; says in one line which they are.

    A folder's own corpus is searched here with BM25, or the server at $SEARCH_URL is asked. The made world is always searched here.
    """
    from seed.envs.search_data import find_corpus, read_corpus, read_questions
    from seed.envs.search_retrievers import Bm25, Server
    url = os.environ.get("SEARCH_URL", "").strip()
    made = config.data in ("auto", "made")
    if config.data == "auto" and url:
        raise UserError("SEARCH_URL is set, but there are no questions for that server: give a folder with question files by --data "
                        "FOLDER, or play the made world by --data made")
    root = _made_world(config) if made else Path(config.data).resolve()
    questions = read_questions(root)
    if url and not made:
        search, where = Server(url), url
        search("who", 1, tries=1)  # a server that is down is named now, not after Stage 1
    else:
        passages = read_corpus(find_corpus(root))
        search, where = Bm25(passages), f"BM25 over {len(passages)} passages"
    numbers = ", ".join(f"{len(found)} {split}" for split, found in questions.items())
    print(f"questions: {numbers} in {root} ({'made here, no downloaded data is used' if made else 'a folder of yours'}); {where}",
          file=sys.stderr)
    return SearchQA(root, questions, search, slots_for(config), config.max_turns)


def _made_world(config) -> Path:
    from seed.envs.search_world import write_world
    numbers = {"train": config.train_games, "valid_seen": config.seen_games, "valid_unseen": config.unseen_games}
    root = CACHE / f"search-v{WORLD_VERSION}-{'-'.join(map(str, numbers.values()))}"
    if not root.is_dir():
        with new_folder(root) as unfinished:
            write_world(unfinished, numbers, WORLD_SEED)
    return root


@exit_cleanly
def main(arguments: list[str] | None = None):
    from seed.config import Config
    from seed.envs.search_data import find_corpus, read_corpus
    from seed.envs.search_retrievers import Bm25, make_server
    parser = argparse.ArgumentParser(description="Answer the Search-R1 retrieval API with BM25 over a corpus.")
    parser.add_argument("--serve", action="store_true", required=True)
    parser.add_argument("--corpus", type=Path, help="JSONL of {id, contents}, wiki-18 for example, also .gz [the made world's]")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    args = parser.parse_args(arguments)
    passages = read_corpus(args.corpus or find_corpus(_made_world(Config())))
    server = make_server(Bm25(passages), args.host, args.port)
    print(f"{len(passages)} passages at http://{args.host}:{server.server_port}/retrieve (Ctrl-C ends)", file=sys.stderr)
    server.serve_forever()


if __name__ == "__main__":
    main()
