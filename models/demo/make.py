"""How is the demo model made, from nothing to a checked folder?

    python3 make.py --minutes 4                 the real one, on a GPU
    python3 make.py --steps 3 --rows 4 --out /tmp/demo    a rehearsal, on a CPU

Draws the training chats (conversations.py), learns a tokenizer from them (make_tokenizer.py), trains a Qwen3 of five million
parameters from random weights, writes the Hugging Face folder, and checks it (check.py). Exit code 1 if an expected case is wrong.
"""

import argparse
import json
import math
import os
import random
import sys
import time
import unicodedata
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

from check import DEVICE, check
from conversations import contradictions, corpus, expected_cases, long_chats
from make_tokenizer import save_tokenizer, train_tokenizer

CONTEXT = 4096
ROW = 512  # tokens of a row of short chats
LONG_EVERY = 8  # every eighth step trains on rows of `CONTEXT` tokens
IGNORED = -100  # label of a token that is not learned: all but the assistant's


def write_configs(folder, tokenizer):
    end, pad = tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": pad,
        "eos_token_id": end,
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": 256,
        "initializer_range": 0.02,
        "intermediate_size": 768,
        "max_position_embeddings": CONTEXT,
        "max_window_layers": 6,
        "num_attention_heads": 4,
        "num_hidden_layers": 6,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 20000,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": tokenizer.get_vocab_size(),
    }
    generation = {"bos_token_id": pad, "do_sample": True, "eos_token_id": [end, pad], "pad_token_id": pad, "temperature": 0.6, "top_k": 20, "top_p": 0.95}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


class Encoder:
    """Turns chats into tokens and labels, as the chat template renders them."""

    def __init__(self, tokenizer, chats, rng):
        contents = sorted({message["content"] for messages in chats for message in messages})
        self.content = {text: encoding.ids for text, encoding in zip(contents, tokenizer.encode_batch(contents, add_special_tokens=False))}
        for text, ids in self.content.items():
            assert tokenizer.decode(ids) == unicodedata.normalize("NFC", text), f"the tokenizer does not round-trip {text!r}"
        ids = lambda text: tokenizer.encode(text, add_special_tokens=False).ids
        self.header = {role: ids(f"<|im_start|>{role}\n") for role in ("system", "user", "assistant")}
        self.no_thoughts, self.end, self.newline = ids("<think>\n\n</think>\n\n"), ids("<|im_end|>"), ids("\n")
        self.rng = rng

    def __call__(self, messages):
        tokens, labels = [], []
        no_thoughts = self.rng.random() < 0.08
        for i, message in enumerate(messages):
            header = self.header[message["role"]] + (self.no_thoughts if no_thoughts and i == len(messages) - 1 else [])
            content = self.content[message["content"]] + self.end
            tokens += header + content + self.newline
            learned = content if message["role"] == "assistant" else [IGNORED] * len(content)
            labels += [IGNORED] * len(header) + learned + [IGNORED]
        return tokens, labels


def pack(encoded, width, pad):
    """Rows of whole chats, `[rows, width]` each: tokens, labels, and positions, which restart with each chat.

    Transformers reads the restarts as borders that attention does not cross. A chat longer than a row is cut.
    """
    rows, row = [], ([], [], [])
    for tokens, labels in encoded:
        tokens, labels = tokens[:width], labels[:width]
        if len(row[0]) + len(tokens) > width:
            rows.append(row)
            row = ([], [], [])
        for part, more in zip(row, (tokens, labels, range(len(tokens)))):
            part.extend(more)
    rows.append(row)
    fill = lambda part, value: torch.tensor([r[part] + [value] * (width - len(r[part])) for r in rows], dtype=torch.int16)
    return [part.to(DEVICE) for part in (fill(0, pad), fill(1, IGNORED), fill(2, 0))]


def shuffled_batches(packed, rows):
    """Batches of an endless series of epochs, each in its own order."""
    while True:
        order = torch.randperm(len(packed[0]), device=DEVICE)
        for start in range(0, max(1, len(order) - rows + 1), rows):
            yield [part[order[start : start + rows]].long() for part in packed]


def train(model, short, long, options):
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], betas=(0.9, 0.98), fused=DEVICE == "cuda")
    forward = torch.compile(model, dynamic=False) if options.compile else model
    short, long = shuffled_batches(short, options.rows), shuffled_batches(long, max(1, options.rows * ROW // CONTEXT))
    began, step, tokens, progress, loss_sum, loss_steps = time.time(), 0, 0, 0.0, 0.0, 0
    while progress < 1.0:
        # The budget is time, or steps if given: the schedule follows whichever it is, up for 4% of it and down to nothing.
        progress = step / options.steps if options.steps else (time.time() - began) / (60 * options.minutes)
        rate = options.rate * min(progress / 0.04 + 0.01, 0.5 + 0.5 * math.cos(math.pi * min(progress, 1.0)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        ids, labels, positions = next(long if step % LONG_EVERY == LONG_EVERY - 1 else short)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
            logits = forward(input_ids=ids, position_ids=positions, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].float().flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step, tokens, loss_sum, loss_steps = step + 1, tokens + ids.numel(), loss_sum + loss.detach(), loss_steps + 1
        if step % options.log_every == 0 or progress >= 1.0:
            seconds = time.time() - began
            print(f"step {step:>6}  {100 * progress:3.0f}%  loss {loss_sum / loss_steps:.5f}  {tokens / 1e6:7.1f} M tokens  {tokens / seconds / 1e3:6.0f} k tokens/s  {seconds:4.0f} s", flush=True)
            loss_sum, loss_steps = 0.0, 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write (default: the folder of this script)")
    parser.add_argument("--minutes", type=float, default=4.0, help="length of the training loop")
    parser.add_argument("--steps", type=int, help="length of the training loop in steps, instead of minutes")
    parser.add_argument("--rows", type=int, default=128, help=f"rows of {ROW} tokens in a step")
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-every", type=int, default=100, help="steps between two lines of progress")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model: a minute of waiting, then faster steps")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    random.seed(options.seed)
    torch.manual_seed(options.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    began = time.time()
    print(f"seed {options.seed}, {DEVICE}, torch {torch.__version__}")

    chats, marathons = corpus(options.seed), long_chats(options.seed, count=400, turns=120)
    assert not (found := contradictions(chats + marathons)), f"one prompt, two answers: {found[:3]}"
    tokenizer = train_tokenizer(chats)
    save_tokenizer(tokenizer, options.out)
    write_configs(options.out, tokenizer)
    (options.out / "expected.json").write_text(json.dumps(expected_cases(), indent=1, ensure_ascii=False) + "\n")

    encode = Encoder(tokenizer, chats + marathons, random.Random(options.seed))
    pad = tokenizer.token_to_id("<|endoftext|>")
    short, long = pack(map(encode, chats), ROW, pad), pack(map(encode, marathons), CONTEXT, pad)
    print(f"{len(chats)} chats in {len(short[0])} rows of {ROW} tokens, {len(long[0])} long ones of {CONTEXT}; vocabulary {tokenizer.get_vocab_size()}; {time.time() - began:.0f} s")

    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(options.out), dtype=torch.float32, attn_implementation="sdpa").to(DEVICE)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters")
    train(model, short, long, options)

    weights = {name: weight.to("cpu", torch.bfloat16).contiguous() for name, weight in model.state_dict().items() if name != "lm_head.weight"}
    save_file(weights, options.out / "model.safetensors", metadata={"format": "pt"})
    print(f"wrote {options.out}: {(options.out / 'model.safetensors').stat().st_size / 2**20:.1f} MiB of weights; {time.time() - began:.0f} s")
    sys.exit(not check(options.out))


if __name__ == "__main__":
    main()
