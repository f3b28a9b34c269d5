"""seed/vision.py and the path of pictures through prompts, sampling, scoring, analysis, Stage 1 and RL: a vision-language model with
random weights and its image processor, built here."""
import base64
import json
import random
from dataclasses import replace

import pytest
import torch
from fakes import TEMPLATE
from PIL import Image
from test_training import lines, run

import export
import train_seed
from seed.analyzer import PICTURES, analyze, analyzer_prompt, fit_prompt
from seed.annotators import message
from seed.augment import H
from seed.config import TINY_MODELS, make_config
from seed.envs.base import tagged
from seed.envs.ezpoints import EZPoints
from seed.envs.sokoban import Sokoban
from seed.policy import load_policy
from seed.rescore import action_logprobs, score
from seed.rollout import rollout
from seed.sampling import sample
from seed.trajectory import Context, Step, Task, Trajectory, to_png
from seed.vision import IMAGE, Prompt, images_of
from train_sft import fine_tune

SMALL = ["--env", "sokoban", "--preset", "qwen2.5-vl-3b", "--no-quantize", "--dtype", "float32", "--lora-rank", 4, "--updates", 2,
         "--tasks-per-update", 2, "--group-size", 2, "--max-turns", 3, "--max-reply-tokens", 12, "--skill-tokens", 12, "--data", "made",
         "--train-games", 6, "--seen-games", 2, "--unseen-games", 2, "--eval-episodes", 2, "--init", "base", "--learning-rate", 0.01,
         "--gradients-every", 2]


def noise(seed: int, width: int = 112, height: int = 112):
    return Image.frombytes("RGB", (width, height), random.Random(seed).randbytes(3 * width * height))


def prompts(policy) -> list:
    """One picture, another one with the same ids, two of different sizes, none."""
    return [policy.encode("put a mug in shelf 1.", (noise(1),)), policy.encode("put a mug in shelf 1.", (noise(2),)),
            policy.encode("put two mugs in desk 2, then look at them.", (noise(3, 168, 84), noise(4, 56, 112))), policy.encode("look")]


def streams(prompts):
    return [random.Random(i) for i in range(len(prompts))]


def test_one_image_token_for_each_vector_of_the_vision_tower(seeing_policy):
    for prompt, sizes in zip(prompts(seeing_policy), ([(112, 112)], [(112, 112)], [(168, 84), (56, 112)], [])):
        seen = [width // 28 * (height // 28) for width, height in sizes]
        assert prompt.count(seeing_policy.eyes.image_id) == sum(seen) and len(images_of(prompt)) == len(sizes)
        assert sum(map(seeing_policy.eyes.tokens, images_of(prompt))) == sum(seen)
    starts = [i for i, token in enumerate(prompts(seeing_policy)[2]) if token == seeing_policy.tokenizer.convert_tokens_to_ids("<|vision_start|>")]
    assert prompts(seeing_policy)[2][starts[0] + 1:starts[0] + 19] == [seeing_policy.eyes.image_id] * 18       # each where its own mark is
    assert prompts(seeing_policy)[2][starts[1] + 1:starts[1] + 9] == [seeing_policy.eyes.image_id] * 8


def test_the_whole_processor_gives_the_same(vision_model, seeing_policy):
    """AutoProcessor, where torchvision is installed, which it wants for videos (it resizes pictures with other rounding)."""
    pytest.importorskip("torchvision", reason="AutoProcessor needs torchvision, which is no requirement: pip install torchvision==0.28.0")
    from transformers import AutoProcessor
    processor, images = AutoProcessor.from_pretrained(vision_model), [noise(3, 168, 84), noise(4, 56, 112), noise(5, 300, 300)]
    asked = [{"role": "user", "content": [*[{"type": "image"}] * 3, {"type": "text", "text": "look at these"}]}]
    text = processor.apply_chat_template(asked, chat_template=TEMPLATE, add_generation_prompt=True)
    whole, ours = processor(text=[text], images=images, return_tensors="pt"), seeing_policy.encode("look at these", tuple(images))
    seen = seeing_policy.eyes.processor(images=images, return_tensors="pt")
    assert whole["input_ids"][0].tolist() == ours and torch.equal(whole["image_grid_thw"], seen["image_grid_thw"])
    assert (whole["pixel_values"] - seen["pixel_values"]).abs().max() < 0.05


def test_the_library_s_own_forward_pass_gives_the_same(seeing_policy):
    """The model given ids, pixels and token kinds in the usual way, each prompt by itself."""
    rows = [(prompt, [77, 12, 1]) for prompt in prompts(seeing_policy)]
    ours = score(seeing_policy, rows, 10_000)
    for (prompt, action), logp in zip(rows, ours):
        ids = torch.tensor([prompt + action])
        kinds = (ids == seeing_policy.eyes.image_id).int()
        seen = seeing_policy.eyes.processor(images=list(images_of(prompt)), return_tensors="pt") if images_of(prompt) else {}
        with torch.no_grad():
            logits = seeing_policy.model(input_ids=ids, mm_token_type_ids=kinds, **seen).logits[0, len(prompt) - 1:-1]
        assert (logits.log_softmax(-1).gather(1, torch.tensor(action)[:, None])[:, 0] - logp).abs().max() < 1e-5


def test_alone_in_a_batch_and_sampled_are_the_same(seeing_policy):
    asked = prompts(seeing_policy)
    replies = sample(seeing_policy, asked, streams(asked), 12, 1.0, 100_000)
    one_by_one = [sample(seeing_policy, [p], [s], 12, 1.0, 1)[0] for p, s in zip(asked, streams(asked))]
    assert [r.action_ids for r in replies] == [r.action_ids for r in one_by_one]
    rows = [(p, r.action_ids) for p, r in zip(asked, replies)]
    batch, alone, (with_gradient, _, mask) = score(seeing_policy, rows, 100_000), score(seeing_policy, rows, 1), action_logprobs(seeing_policy, rows)
    for i, reply in enumerate(replies):
        for other in (torch.tensor(reply.logprobs), alone[i], with_gradient[i][mask[i]].detach()):
            assert (batch[i] - other).abs().max() < 2e-5


def test_few_places_give_the_same_replies(seeing_policy):
    asked = prompts(seeing_policy) * 3
    many, few = (sample(seeing_policy, asked, streams(asked), 12, 1.0, tokens) for tokens in (100_000, 150))
    assert [r.action_ids for r in many] == [r.action_ids for r in few]


def test_the_picture_counts(seeing_policy):
    """Equal ids, other pictures: other log-probs, also where both are read together."""
    first, second = prompts(seeing_policy)[:2]
    assert first == second and images_of(first) != images_of(second)
    a, b = score(seeing_policy, [(first, [77, 12]), (second, [77, 12])], 10_000)
    assert (a - b).abs().max() > 0.01
    replies = sample(seeing_policy, [first, second, first], [random.Random(5) for _ in range(3)], 12, 1.0, 100_000)
    assert replies[0] == replies[2] and replies[0].logprobs[0] != replies[1].logprobs[0]


def test_a_sampled_image_token_is_a_word(seeing_policy):
    """A seeing_policy may say it; it stands for no picture then."""
    prompt, image = prompts(seeing_policy)[0], seeing_policy.eyes.image_id
    batch = score(seeing_policy, [(prompt, [77, image, image, 12]), (prompt, [77])], 10_000)
    assert (score(seeing_policy, [(prompt, [77])], 10_000)[0] - batch[0][:1]).abs().max() < 1e-5
    user = seeing_policy.encode(f"look{IMAGE} {IMAGE}", (noise(1),))
    assert user.count(image) == 16                                   # nor does one in the text of a game


def boards(tmp_path, slots=4) -> Sokoban:
    (tmp_path / "train.xsb").write_text("; one\n#####\n#@$.#\n#   #\n#####\n\n; two\n######\n#@ $.#\n#    #\n######\n")
    return Sokoban(tmp_path, slots, 15, vision=True)


def test_h_leaves_the_pictures(seeing_policy, tmp_path):
    env = boards(tmp_path)
    task = env.tasks("train")[0]
    turn = env.reset(0, task)
    h = Context(replace(task, description=turn.description), (), turn.observation, turn.admissible, 1, turn.images)
    plain, taught = seeing_policy.encode_context(h), seeing_policy.encode_context(H(h, "Push the box right."))
    assert H(h, "Push the box right.").images is h.images and len(h.images) == 1
    assert images_of(plain) == images_of(taught) == h.images and plain != taught
    assert plain.count(seeing_policy.eyes.image_id) == taught.count(seeing_policy.eyes.image_id) == seeing_policy.eyes.tokens(h.images[0]) > 0
    inside = seeing_policy.decode(taught)
    assert inside.index("Push the box right.") > inside.rindex(IMAGE)


def played(policy, tmp_path) -> list[Trajectory]:
    env = boards(tmp_path)
    episodes = [(task, 0, copy) for task in env.tasks("train") for copy in range(2)]
    done, crashed = rollout(policy, env, episodes, "s", max_turns=4, history_length=2, temperature=1.0, max_prompt_tokens=2048,
                            max_reply_tokens=8, batch_tokens=10_000)
    assert len(done) == 4 and not crashed
    return done


def test_what_was_sampled_is_what_is_scored_and_written(seeing_policy, tmp_path):
    """Rollout, record, file and back: the same pictures and so the same log-probs."""
    for trajectory in played(seeing_policy, tmp_path):
        again = Trajectory.from_json(trajectory.to_json())
        for step, read in zip(trajectory.steps, again.steps):
            assert [i.tobytes() for i in read.context.images] == [i.tobytes() for i in step.context.images] != []
            assert seeing_policy.encode_context(read.context) == step.prompt_ids
            (logp,) = score(seeing_policy, [(seeing_policy.encode_context(read.context), read.action_ids)], 10_000)
            assert (logp - torch.tensor(step.logprobs)).abs().max() < 2e-5


def test_the_analyzer_sees_the_steps_pictures(seeing_policy, tmp_path):
    trajectory = played(seeing_policy, tmp_path)[0]
    trajectory.steps = [replace(step, context=replace(step.context, images=(noise(i),))) for i, step in enumerate(trajectory.steps * 2)]
    text, images = analyzer_prompt(trajectory)
    assert [i.tobytes() for i in images] == [noise(i).tobytes() for i in range(8)] and PICTURES in text
    text, images = analyzer_prompt(trajectory, 3)                        # the first two and the last one
    assert [i.tobytes() for i in images] == [noise(i).tobytes() for i in (0, 1, 7)] and "5 steps left out" in text
    text, images = fit_prompt(trajectory, seeing_policy.encode, len(seeing_policy.encode(*analyzer_prompt(trajectory, 5))))
    assert len(images) == 5
    for step in trajectory.steps:
        step.context = replace(step.context, images=())
    assert PICTURES not in analyzer_prompt(trajectory)[0]
    answers = analyze(seeing_policy, [trajectory], "s", temperature=1.0, most_prompt_tokens=4000, most_skill_tokens=5, batch_tokens=10_000)
    assert len(answers[0]) <= 5 and trajectory.skill_error


def test_stage_1_learns_from_pictures(vision_model):
    """Two answers that the picture alone tells apart."""
    config = make_config({"env": "ezpoints", "preset": "qwen2.5-vl-3b", "model": str(vision_model), "quantize": False, "dtype": "float32",
                          "lora_rank": 8, "sft_epochs": 40, "sft_learning_rate": 0.003, "batch_tokens": 4096})
    policy = load_policy(config)
    data = [(("look", (noise(i, 56, 56),)), answer) for i, answer in ((1, " mug"), (2, " desk"))]
    losses = fine_tune(config, policy, data)
    ends = [policy.tokenizer.encode(answer, add_special_tokens=False) + [1] for _, answer in data]
    right = score(policy, [(policy.encode(*q), ids) for (q, _), ids in zip(data, ends)], 10_000)
    wrong = score(policy, [(policy.encode(*q), ids) for (q, _), ids in zip(data, ends[::-1])], 10_000)
    assert losses[-1] < 0.2 * losses[0] and all(r.sum() > w.sum() + 1 for r, w in zip(right, wrong))


def test_endpoints_are_sent_the_pictures():
    assert message(("look", ())) == "look"
    picture, text = message(("look", (noise(1),)))
    assert picture["image_url"]["url"].startswith("data:image/png;base64,") and text == {"type": "text", "text": "look"}
    assert base64.b64decode(picture["image_url"]["url"].split(",")[1]) == base64.b64decode(to_png(noise(1)))


def test_two_updates_of_a_vision_model_change_its_adapter_alone(vision_model, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("seed.envs.sokoban.CACHE", tmp_path)
    out = tmp_path / "run"
    assert run(train_seed.main, *SMALL, "--model", vision_model, "--method", "grpo+opsd", "--out", out) == 0
    metrics = lines(out / "metrics.jsonl")
    assert len(metrics) == 2 and len({m["weights"] for m in metrics}) == 2
    assert all(m["taught_tokens"] == 1 and m["delta_abs"] > 0 and m["opd_loss"] != 0 and m["sampling_gap"] < 1e-5 for m in metrics)
    trajectory = Trajectory.from_json((out / "trajectories.jsonl").read_text().splitlines()[0])
    assert all(step.context.images[0].size == (336, 336) for step in trajectory.steps)
    from safetensors.torch import load_file
    adapter = load_file(out / "checkpoints" / "update-2" / "policy" / "adapter_model.safetensors")
    assert adapter and all("language_model" in name and "lora" in name for name in adapter)
    # Interrupted after one update and resumed: the same.
    again = tmp_path / "again"
    options = [*SMALL[:SMALL.index("--updates")], *SMALL[SMALL.index("--updates") + 2:]]
    assert run(train_seed.main, *options, "--updates", 1, "--model", vision_model, "--method", "grpo+opsd", "--out", again) == 0
    assert run(train_seed.main, "--resume", "--updates", 2, "--out", again) == 0
    assert lines(again / "metrics.jsonl")[1]["weights"] == metrics[1]["weights"]
    assert run(export.main, "--run", out, "--out", tmp_path / "served") == 0
    assert "log-probs of" in capsys.readouterr().err and (tmp_path / "served" / "preprocessor_config.json").exists()


def test_seed_itself_on_pictures_with_skills_that_can_be_read(vision_model, tmp_path, monkeypatch):
    """SEED's own path: analysis with pictures, H, re-scoring, both losses. A random model writes no JSON: its answers are replaced."""
    monkeypatch.setattr("seed.analyzer.read_answer", lambda text: ("Done.", "Push the box to the ring.", None))
    seen = []
    monkeypatch.setattr("seed.analyzer.sample", lambda policy, asked, *rest: seen.extend(asked) or sample(policy, asked, *rest))
    monkeypatch.setattr("seed.envs.sokoban.CACHE", tmp_path)
    assert run(train_seed.main, *SMALL, "--model", vision_model, "--method", "seed", "--out", tmp_path / "run") == 0
    assert len(seen) == 8 and all(len(images_of(prompt)) == 3 for prompt in seen)     # three steps a trajectory
    assert all(m["skill_valid"] == 1 and m["delta_abs"] > 0 for m in lines(tmp_path / "run" / "metrics.jsonl"))


@pytest.mark.parametrize("env", ["sokoban", "ezpoints"])
def test_environments_show_pictures_and_hide_their_text(env, tmp_path):
    game = boards(tmp_path) if env == "sokoban" else EZPoints(2, vision=True)
    turn = game.reset(0, game.tasks("train")[0])
    after = game.step(0, "right" if env == "sokoban" else "1")
    assert len(turn.images) == len(after.images) == 1 and turn.images[0].size[0] >= 224
    assert "#" not in turn.observation and "of hearts" not in turn.observation and "picture" in turn.observation


@pytest.mark.parametrize("options, message", [
    (["--env", "alfworld", "--preset", "qwen2.5-vl-3b"], "--env alfworld has no pictures: expected --env sokoban or ezpoints"),
    (["--env", "sokoban", "--preset", "tiny", "--vision"], "the tiny preset's models see nothing: give --preset qwen2.5-vl-3b"),
    (["--env", "sokoban", "--preset", "qwen2.5-vl-3b", "--model", str(TINY_MODELS / "alfworld"), "--no-quantize"], "cannot load the model"),
])
def test_bad_input(options, message, capsys, tmp_path):
    assert run(train_seed.main, *options, "--out", tmp_path / "run") == 2
    err = capsys.readouterr().err
    assert message in err and "Traceback" not in err
