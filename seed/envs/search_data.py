"""Question files and corpora for search-based QA, as they are published, in a folder of the user's.

In the paper: NQ, HotpotQA, TriviaQA, PopQA, 2WikiMultihopQA, MuSiQue and Bamboogle, with the wiki-18 corpus. Read are JSON lines and
parquet, in the two forms in which these sets go round:

- FlashRAG: {"id", "question", "golden_answers": [...]} in SOURCE/train.jsonl, SOURCE/dev.jsonl, SOURCE/test.jsonl;
- Search-R1 and verl-agent: train.parquet, test.parquet with "data_source", "reward_model": {"ground_truth": {"target": [...]}} and the
  question in "question", "env_kwargs" or at the end of "prompt".

A corpus is {"id", "contents"} a line: a file named corpus*.jsonl or wiki*.jsonl; .gz is read as well.

Splits: `train` are the training files; `valid_seen` the test questions of sources that have training questions (in the paper NQ and
HotpotQA); `valid_unseen` those of the others. A source's dev file counts only where it has no test file (as in Search-R1). Files
that are named valid_seen and valid_unseen are what they say.

How it differs from the original:
1. Ids are SOURCE/SPLIT/ID, so that the seven sets, each of which counts from 0, can be told apart.
"""
import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

from seed.errors import UserError

SPLITS = ("train", "valid_seen", "valid_unseen")
STEMS = ("train", "dev", "test", "valid_seen", "valid_unseen")
EXPECTED = ("expected question files like nq/train.jsonl and nq/test.jsonl with id, question, golden_answers on each line, "
            "or Search-R1's train.parquet and test.parquet")


@dataclass(frozen=True)
class Question:
    id: str
    source: str                 # the data set: results are split by it
    text: str
    answers: tuple[str, ...]    # any of them is right


def read_rows(path: Path) -> Iterator[tuple[str, dict]]:
    """(where it stands, row) of a .jsonl, .jsonl.gz or .parquet file."""
    if path.suffix == ".parquet":
        try:
            import pyarrow.parquet
        except ImportError:
            raise UserError(f"{path} is a parquet file, which needs a package: `pip install pyarrow`; JSON lines need none") from None
        try:
            file = pyarrow.parquet.ParquetFile(path)
        except (pyarrow.ArrowException, OSError) as error:
            raise UserError(f"{path} is no whole parquet file ({str(error).splitlines()[0]}): download it again") from None
        number = 0
        for batch in file.iter_batches():
            for number, row in enumerate(batch.to_pylist(), number + 1):
                yield f"{path}, row {number}", row
        return
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", newline="\n") as lines:
        number = 0
        try:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise ValueError
                    yield f"{path}, line {number}", row
        except (ValueError, EOFError, gzip.BadGzipFile):
            raise UserError(f"{path}, line {number}: expected one JSON object a line, in UTF-8") from None


def read_question(where: str, row: dict, source: str, split: str, number: int) -> Question:
    """A row of any of the forms as a Question; UserError with its place where a part is missing."""
    try:
        kwargs = row.get("env_kwargs") or {}
        truth = (row.get("reward_model") or {}).get("ground_truth") or kwargs.get("ground_truth") or {}
        answers = row.get("golden_answers") or (truth.get("target") if isinstance(truth, dict) else truth) or row.get("answer")
        # Search-R1's prompt ends with the question.
        text = row.get("question") or kwargs.get("question") or row["prompt"][-1]["content"].rpartition("Question: ")[2]
        text = text.strip()
    except (KeyError, IndexError, TypeError, AttributeError):
        text, answers = "", None
    answers = [str(answer) for answer in (answers if isinstance(answers, (list, tuple)) else [answers]) if answer is not None]
    if not text or not answers:
        raise UserError(f"{where}: no question or no right answers; {EXPECTED}")
    source = str(row.get("data_source") or source)
    name = row["id"] if row.get("id") is not None else number
    return Question(f"{source}/{split}/{name}", source, text if text.endswith("?") else f"{text}?", tuple(answers))


def read_questions(root: Path) -> dict[str, list[Question]]:
    """{split: questions sorted by id} of a folder. UserError where there are no training questions or an id occurs twice."""
    found = {stem: [] for stem in STEMS}
    files = sorted(path for pattern in ("*", "*/*") for path in root.glob(pattern) if path.is_file()) if root.is_dir() else []
    for path in files:
        stem = path.name.split(".")[0].split("-")[0]   # train-00000-of-00002.parquet
        if stem in STEMS and path.name.endswith((".jsonl", ".jsonl.gz", ".parquet")):
            source = root.name if path.parent == root else path.parent.name
            found[stem] += [read_question(where, row, source, stem, number) for number, (where, row) in enumerate(read_rows(path))]
    if not found["train"]:
        raise UserError(f"--data {root} has no training questions: {EXPECTED}")
    trained, tested = ({q.source for q in found[stem]} for stem in ("train", "test"))
    splits = {split: list(found.get(split, ())) for split in SPLITS}
    for question in found["test"] + [q for q in found["dev"] if q.source not in tested]:
        splits["valid_seen" if question.source in trained else "valid_unseen"].append(question)
    ids = set()
    for questions in splits.values():
        questions.sort(key=lambda question: question.id)
        for question in questions:
            if question.id in ids:
                raise UserError(f"two questions of {root} have the id {question.id}: each needs its own")
            ids.add(question.id)
    return splits


def find_corpus(root: Path) -> Path:
    """The corpus of a folder. UserError where there is none, or more than one."""
    files = sorted(path for name in ("corpus", "wiki") for end in (".jsonl", ".jsonl.gz") for path in root.glob(f"{name}*{end}"))
    if len(files) != 1:
        raise UserError(f"--data {root} has {len(files) or 'no'} corpus files: expected one, corpus.jsonl or wiki-18.jsonl with id and "
                        f"contents on each line, or a search server's address in SEARCH_URL")
    return files[0]


def read_corpus(path: Path) -> list[dict]:
    """[{"id", "contents"}] of a corpus, in the file's order. wiki-18 puts the title in quotes on the first line of contents."""
    if not path.is_file():
        raise UserError(f"there is no corpus {path}: expected a JSONL file with id and contents on each line")
    passages = []
    for where, row in read_rows(path):
        if not isinstance(row.get("contents"), str):
            raise UserError(f"{where}: no contents; expected {{\"id\": \"0\", \"contents\": \"\\\"Title\\\"\\ntext\"}}")
        passages.append({"id": str(row.get("id", len(passages))), "contents": row["contents"]})
    if not passages:
        raise UserError(f"{path} is empty: expected a JSONL file with id and contents on each line")
    return passages
