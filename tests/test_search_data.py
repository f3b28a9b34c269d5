"""seed/envs/search_data.py: public question files and corpora."""
import gzip
import json
import sys

import pytest
from test_search import VEX

from seed.envs.search_data import find_corpus, read_corpus, read_question, read_questions, read_rows
from seed.errors import UserError

SIZES = {"train": 160, "valid_seen": 200, "valid_unseen": 200}


def put(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


# --- question files

def flashrag(split, *names):
    return [{"id": f"{split}_{i}", "question": f"Who is {name}", "golden_answers": [name]} for i, name in enumerate(names)]


def search_r1(source, split, index, text="Who is he?"):
    return {"data_source": source, "prompt": [{"role": "user", "content": f"Answer the given question. Question: {text}\n"}],
            "ability": "fact-reasoning", "reward_model": {"style": "rule", "ground_truth": {"target": ["Bob", "Rob"]}},
            "extra_info": {"split": split, "index": index}}


def test_sources_without_training_questions_are_unseen(tmp_path):
    put(tmp_path / "nq" / "train.jsonl", flashrag("train", "a", "b"))
    put(tmp_path / "nq" / "dev.jsonl", flashrag("dev", "left out: there is a test file"))
    put(tmp_path / "nq" / "test.jsonl", flashrag("test", "c"))
    put(tmp_path / "hotpotqa" / "train.jsonl", flashrag("train", "d"))
    put(tmp_path / "hotpotqa" / "dev.jsonl", flashrag("dev", "e"))
    put(tmp_path / "musique" / "dev.jsonl", flashrag("dev", "f"))
    put(tmp_path / "bamboogle" / "test.jsonl", flashrag("test", "g", "h"))
    (tmp_path / "README.md").write_text("not a question file")
    splits = read_questions(tmp_path)
    assert {split: [q.id for q in found] for split, found in splits.items()} == {
        "train": ["hotpotqa/train/train_0", "nq/train/train_0", "nq/train/train_1"],
        "valid_seen": ["hotpotqa/dev/dev_0", "nq/test/test_0"],
        "valid_unseen": ["bamboogle/test/test_0", "bamboogle/test/test_1", "musique/dev/dev_0"]}
    assert splits["valid_unseen"][2].text == "Who is f?" and splits["valid_unseen"][2].source == "musique"


@pytest.mark.parametrize("row, text, answers, source", [
    (search_r1("nq", "train", 7), "Who is he?", ("Bob", "Rob"), "nq"),
    ({**search_r1("nq", "train", 7), "question": "who is she"}, "who is she?", ("Bob", "Rob"), "nq"),
    ({"data_source": "triviaqa", "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
      "env_kwargs": {"ground_truth": {"target": ["x"]}, "question": " q ", "data_source": "triviaqa"}}, "q?", ("x",), "triviaqa"),
    ({"question": "q?", "golden_answers": "bare"}, "q?", ("bare",), "folder"),
    ({"question": "q?", "answer": ["a", 1984]}, "q?", ("a", "1984"), "folder"),
    ({"question": "q?", "golden_answers": [""]}, "q?", ("",), "folder"),
])
def test_rows_of_every_form(row, text, answers, source):
    question = read_question("f, line 1", row, "folder", "train", 7)
    assert (question.text, question.answers, question.source, question.id) == (text, answers, source, f"{source}/train/7")


@pytest.mark.parametrize("row", [{}, {"question": "q?"}, {"golden_answers": ["a"]}, {"question": " ", "golden_answers": ["a"]},
                                 {"question": "q?", "golden_answers": []}, {"question": 3, "golden_answers": ["a"]},
                                 {"prompt": "q", "answer": "a"}, {"prompt": [], "answer": "a"}, {"question": "q?", "reward_model": "a"}])
def test_rows_without_question_or_answer_are_named(row):
    with pytest.raises(UserError, match="f, line 1: no question or no right answers; expected"):
        read_question("f, line 1", row, "folder", "train", 7)


def test_parquet_as_search_r1_writes_it(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow, which requirements.txt does not have: pip install pyarrow")
    import pyarrow.parquet
    rows = [search_r1("nq", "train", 0, "Who is a?"), search_r1("hotpotqa", "train", 0, "Who is b?")]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "train.parquet")
    rows = [search_r1(source, "test", i) for i, source in enumerate(("nq", "popqa", "nq"))]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "test-00000-of-00001.parquet", row_group_size=2)
    splits = read_questions(tmp_path)
    assert {split: [q.id for q in found] for split, found in splits.items()} == {
        "train": ["hotpotqa/train/1", "nq/train/0"], "valid_seen": ["nq/test/0", "nq/test/2"], "valid_unseen": ["popqa/test/1"]}
    assert splits["train"][1].text == "Who is a?" and splits["train"][1].answers == ("Bob", "Rob")
    (tmp_path / "train.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(UserError, match="train.parquet is no whole parquet file"):
        read_questions(tmp_path)


def test_parquet_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UserError, match="`pip install pyarrow`"):
        list(read_rows(tmp_path / "train.parquet"))


def test_folders_that_cannot_be_played(tmp_path):
    with pytest.raises(UserError, match="has no training questions: expected question files like nq/train.jsonl"):
        read_questions(tmp_path / "nowhere")
    put(tmp_path / "nq" / "train.jsonl", flashrag("train", "a") * 2)
    with pytest.raises(UserError, match="the id nq/train/train_0"):
        read_questions(tmp_path)
    (tmp_path / "nq" / "train.jsonl").write_text('{"id": 1, "question"')
    with pytest.raises(UserError, match=r"train.jsonl, line 1: expected one JSON object"):
        read_questions(tmp_path)
    (tmp_path / "nq" / "train.jsonl").write_text('\n[1, 2]\n')
    with pytest.raises(UserError, match=r"train.jsonl, line 2: expected one JSON object"):
        read_questions(tmp_path)


def test_corpora(tmp_path):
    with pytest.raises(UserError, match="no corpus files.*SEARCH_URL"):
        find_corpus(tmp_path)
    with gzip.open(tmp_path / "wiki-18.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(json.dumps(VEX) + "\n\n" + json.dumps({"contents": "\u00e9\u2028 one line"}, ensure_ascii=False) + "\n")
    assert read_corpus(find_corpus(tmp_path)) == [VEX, {"id": "1", "contents": "\u00e9\u2028 one line"}]
    put(tmp_path / "corpus.jsonl", [{"id": "0", "text": "x"}])
    with pytest.raises(UserError, match="has 2 corpus files"):
        find_corpus(tmp_path)
    with pytest.raises(UserError, match="corpus.jsonl, line 1: no contents"):
        read_corpus(tmp_path / "corpus.jsonl")
    put(tmp_path / "corpus.jsonl", [])
    with pytest.raises(UserError, match="is empty"):
        read_corpus(tmp_path / "corpus.jsonl")
    (tmp_path / "wiki-18.jsonl.gz").write_bytes((tmp_path / "wiki-18.jsonl.gz").read_bytes()[:30])
    with pytest.raises(UserError, match="wiki-18.jsonl.gz, line"):
        read_corpus(tmp_path / "wiki-18.jsonl.gz")
    with pytest.raises(UserError, match="there is no corpus"):
        read_corpus(tmp_path / "nothing.jsonl")
