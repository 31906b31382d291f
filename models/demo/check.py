"""Does a demo model folder answer every expected case exactly, and how narrowly?

    python3 check.py [FOLDER]

Greedy decoding gives an answer exactly if each of its tokens has the largest logit after the tokens before it. So one pass over
prompt and answer decides a case, and shows its margin: by how much, at the answer's weakest token, the best other logit trails.
The weights are bf16; they are run in f32 arithmetic and in bf16, and both must give every answer. Exit code 1 if one does not.
A CPU, slow in bf16, only runs the expected cases in f32; a GPU also tries every sum and chats that training has not drawn.
"""

import json
import os
import random
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from conversations import CANONICAL, SHOPS, Assistant, Keeper, expected_cases

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def every_sum():
    for a in range(100):
        for b in range(100):
            chat = Assistant(CANONICAL)
            chat.add(a, b)
            yield {"name": f"{a} + {b}", "messages": chat.messages[:-1], "answer": chat.messages[-1]["content"]}


def fresh_chats(count):
    """The last turns of chats that training has not drawn, in any phrasing."""
    rng = random.Random("fresh")
    for i in range(count):
        chat = Assistant(rng) if i % 2 else Keeper(rng, rng.choice(SHOPS))
        for _ in range(rng.randint(1, 5)):
            chat.improvise()
        yield {"name": f"fresh {i}", "messages": chat.messages[:-1], "answer": chat.messages[-1]["content"]}


@torch.inference_mode()
def judge(model, tokenizer, cases, **template_options):
    """The margin of each case, negative if wrong, and what the model prefers at the first wrong token."""
    encoded = []
    for case in cases:
        prompt = tokenizer.apply_chat_template(case["messages"], tokenize=False, add_generation_prompt=True, **template_options)
        prompt = tokenizer.encode(prompt, add_special_tokens=False)
        encoded.append((prompt, tokenizer.encode(case["answer"] + "<|im_end|>", add_special_tokens=False)))
    verdicts = [None] * len(cases)
    by_length = sorted(range(len(cases)), key=lambda i: sum(map(len, encoded[i])))
    for start in range(0, len(cases), 64):
        batch = by_length[start : start + 64]
        width = max(sum(map(len, encoded[i])) for i in batch)
        rows = [(p + a + [0] * width)[:width] for p, a in (encoded[i] for i in batch)]  # padding is behind, causality hides it
        logits = model(torch.tensor(rows, device=model.device), use_cache=False).logits.float()
        for row, i in enumerate(batch):
            prompt, answer = encoded[i]
            scores, wanted = logits[row, len(prompt) - 1 : len(prompt) + len(answer) - 1], torch.tensor(answer, device=model.device)[:, None]
            margins = scores.gather(1, wanted)[:, 0] - scores.scatter(1, wanted, -torch.inf).amax(1)
            wrong = (margins <= 0).nonzero()
            said = ""
            if len(wrong):
                at = int(wrong[0])
                said = tokenizer.decode([*answer[:at], int(scores[at].argmax())])
            verdicts[i] = (float(margins.min()), said)
    return verdicts


def check(folder):
    """Prints how the folder fares. True if all expected cases hold in both arithmetics."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    cases = json.loads((Path(folder) / "expected.json").read_text())
    assert cases == expected_cases(), "expected.json is older than conversations.py"
    good = True
    for dtype in (torch.float32, torch.bfloat16) if DEVICE == "cuda" else (torch.float32,):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(DEVICE).eval()

        def report(title, cases, **template_options):
            verdicts = judge(model, tokenizer, cases, **template_options)
            wrong = [(case, said) for case, (margin, said) in zip(cases, verdicts) if margin <= 0]
            narrow, name = min((margin, case["name"]) for case, (margin, _) in zip(cases, verdicts))
            print(f"{str(dtype)[6:]:>9}  {title:<38} {len(cases) - len(wrong):>5} of {len(cases):>5}   smallest margin {narrow:7.3f} ({name})")
            for case, said in wrong[:8]:
                print(f"{'':11}wrong: {case['messages'][-1]['content']!r}: wanted {case['answer']!r}, said {said!r}")
            return not wrong

        good &= report("expected cases", cases)
        if DEVICE == "cuda":
            report("expected cases, enable_thinking=false", cases, enable_thinking=False)
            report("every sum of 0..99", list(every_sum()))
            report("chats not in the training text", list(fresh_chats(2000)))
        for prompt in ("introduce yourself", "list all prime numbers within 100", "what is 17 + 25?", "say hello in Japanese"):
            ids = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True, return_tensors="pt", return_dict=True).to(DEVICE)
            out = model.generate(**ids, do_sample=False, temperature=None, top_p=None, top_k=None, max_new_tokens=300)
            print(f"{'':11}{prompt} -> {tokenizer.decode(out[0, ids['input_ids'].shape[1] :], skip_special_tokens=True)}")
    print("ALL EXPECTED CASES HOLD" if good else "SOME EXPECTED CASES ARE WRONG")
    return good


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    sys.exit(not check(folder))
