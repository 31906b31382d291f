"""Trains small tokenizers of the kinds that models have, and records what they make of hard texts.

Writes, beside this script, one folder a tokenizer with its tokenizer.json, and tokenizers.json with the expected tokens and
texts. The training of sentencepiece, metaspace, wordpiece and bert depends on the order of a hash table: name the others. Needs the
package tokenizers (0.23.3 made the committed files), and unigram the package sentencepiece (0.2.3).

    python tests/golden/text/make_tokenizers.py byte_level sentencepiece
"""

import json
import os
import random
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = Path(__file__).parent

WORDS = """
the engine reads a folder and answers questions about prime numbers one token at a time while other requests wait for
their turn in the same batch so that no long prompt stalls a short one and every answer stays the same whoever else asks
""".split()
LINES = [
    "The quick brown fox jumps over 13 lazy dogs; isn't it fun? We'll see, they've said.",
    "def prime(n):\n    return all(n % d for d in range(2, n))\n\n\nprint([n for n in range(2, 100) if prime(n)])",
    "Größe, Übermut, façade, naïve, señor, smørrebrød",
    "日本語のテキストは空白なしで書かれます。中文也是一样的。한국어는 다릅니다.",
    "Привет, мир! Καλημέρα κόσμε. שלום עולם. مرحبا بالعالم",
    "emoji: 😀 😃 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪",
    "1234567890 3.14159 1,000,000 0x1F",
]

TEXTS = {
    "empty": "",
    "one space": " ",
    "many spaces": "     leading,    inner and trailing    ",
    "words": "The engine answers questions about prime numbers.",
    "contractions": "It's they'll WE'VE I'm don't",
    "digits": "7 42 123 1234 12345678 1e-9",
    "newlines": "a\n\n\nb\r\nc\td\n",
    "code": "if (x[i] != 0) { return -1; } // no <b>tags</b> & \"quotes\"",
    "accents": "Größe façade naïve",
    "combining": "e\u0301 n\u0303 \u0928\u093c",
    "composition exclusion": "\u0958\u0959\u095a\u0958",
    "three scripts": "日本語 한국어 Русский",
    "emoji": "😀👍🏽👨‍👩‍👧‍👦🏳️‍🌈🇩🇪",
    "rare": "\U00020000\U0001f9ff\u0ca0_\u0ca0 𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
    "controls": "\x00\x01\x1b[0m\x7f\u0085\u200b\ufeff",
    "replacement": "a\ufffdb\ufffd",
    "specials": "<|im_start|>user\nhi<|im_end|>\n<s>x</s><|begin_of_text|>y<|eot_id|>",
    "special beside text": "a<|im_end|>b <|im_end|> c",
    "spelled byte": "<0x41> <0xE5>",
    "tools": "<tool_call>{\"name\": \"f\"}</tool_call>",
    "underscore block": "▁a ▁▁b",
    "white space of other kinds": "a\u00a0b\u2003c\u3000d",
}


def corpus():
    rng = random.Random(7)
    for _ in range(400):
        yield " ".join(rng.choice(WORDS) for _ in range(12)).capitalize() + "."
    for _ in range(20):
        yield from LINES


def byte_level():
    """As Qwen2 and Qwen3: NFC, a split pattern that takes digits one by one, no post-processor."""
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, 600)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in ("<tool_call>", "</tool_call>", "<think>", "日本")])
    return tokenizer


def byte_level_bos():
    """As Llama 3: digits by threes, whole words looked up before merges, a post-processor that begins texts with BOS."""
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, 500)
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|eot_id|>"])
    bos = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin_of_text|> $A",
                pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                special_tokens=[("<|begin_of_text|>", bos)],
            ),
        ]
    )
    # Left over from a training run: neither may reach a prompt.
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)
    return tokenizer


def byte_level_cases():
    """As Mistral Nemo, Ministral 3, o200k and Phi-4-mini: special tokens come first, words are split by case."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    pattern = (
        rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+|[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*|\p{{N}}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    specials = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "<|im_start|>", "<|im_end|>"]
    train(tokenizer, 500, specials)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A </s> <s>:1 $B:1 </s>:1", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return tokenizer


def byte_level_digits():
    """As Granite 3 and Cohere 2: single digits, the split of GPT-2, and tokens of several spaces and letters that were added."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=False))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=True, trim_offsets=True, use_regex=True)
    train(tokenizer, 450)
    tokenizer.add_special_tokens(["<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>"])
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in (2, 4, 8)])
    tokenizer.add_tokens([AddedToken("|||ADDRESS|||", normalized=False), AddedToken("Größe", normalized=True)])
    tokenizer.add_tokens([AddedToken("hello", normalized=False, single_word=True, lstrip=True)])
    return tokenizer


def block_pieces(specials, bytes_at):
    """The vocabulary and merges of a sentencepiece model: `specials` first, byte tokens at `bytes_at`, then pieces of ASCII."""
    pieces = Tokenizer(models.BPE())
    pieces.normalizer = normalizers.Replace(" ", "▁")
    pieces.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=["é", "ß"], show_progress=False)
    pieces.train_from_iterator([line for line in corpus() if line.isascii()], trainer)
    learned = json.loads(pieces.to_str())["model"]
    vocab = {token: index for index, token in enumerate(specials)}
    while len(vocab) < bytes_at:
        vocab[f"<unused{len(vocab)}>"] = len(vocab)
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(vocab)
    for piece, _ in sorted(learned["vocab"].items(), key=lambda item: item[1]):
        vocab.setdefault(piece, len(vocab))
    return vocab, [tuple(merge) for merge in learned["merges"]]


def blocks_without_prefix():
    """As Gemma 2 and 3: no block is prepended and none is removed; runs of spaces and line ends are added tokens."""
    vocab, merges = block_pieces(["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"], 9)
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<|im_start|>", "<|im_end|>"])
    runs = ["\n\n", "\n\n\n", "▁▁", "▁▁▁▁", "<b>", "</b>", "<unused7>"]
    tokenizer.add_tokens([AddedToken(run, normalized=False) for run in runs])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos>:1 $B:1", special_tokens=[("<bos>", 2)]
    )
    return tokenizer


def blocks_first():
    """As Mistral 7B v0.3: a pre-tokenizer prepends the block to the first part of a text alone, not after special tokens."""
    vocab, merges = block_pieces(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"], 5)
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)]
    )
    return tokenizer


def blocks_and_marks():
    """As Phi-3: Llama 2 with added tokens that take the spaces after them."""
    vocab, merges = block_pieces(["<unk>", "<s>", "</s>"], 3)
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    marks = ["<|im_start|>", "<|im_end|>", "<|begin_of_text|>"]
    tokenizer.add_special_tokens(["<unk>", "<s>"] + [AddedToken(mark, normalized=False, rstrip=True) for mark in marks])
    tokenizer.add_tokens([AddedToken("</s>", normalized=False, rstrip=True)])
    return tokenizer


def sentencepiece():
    """As Llama 2 and Mistral: spaces become a block character, one is prepended, unknown characters become bytes."""
    pieces = Tokenizer(models.BPE())
    pieces.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    pieces.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=[], limit_alphabet=90, show_progress=False)
    pieces.train_from_iterator(corpus(), trainer)
    learned = json.loads(pieces.to_str())["model"]
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(vocab)
    for piece, _ in sorted(learned["vocab"].items(), key=lambda item: item[1]):
        vocab.setdefault(piece, len(vocab))
    merges = [tuple(merge) for merge in learned["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)]
    )
    return tokenizer


def metaspace():
    """As XLM-R and T5: a decoder that treats the first token unlike the others. A unigram model."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=300, unk_token="<unk>", special_tokens=["<unk>", "<s>", "</s>"], show_progress=False
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def wordpiece():
    """As BERT: a decoder that no table stands in for."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    trainer = trainers.WordPieceTrainer(
        vocab_size=400, special_tokens=["[UNK]", "[CLS]", "[SEP]"], limit_alphabet=100, show_progress=False
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def bert():
    """As BERT: letters without case and accents, tokens around a text and between the two of a pair."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=True)
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=specials, limit_alphabet=100, show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


# What the normalizer of a unigram model replaces.
RULES = {
    "\u00a0": " ", "\u2003": " ", "\u3000": " ", "\t": " ", "\n": " ", "\r": " ", "ﬁ": "fi", "½": "1⁄2", "²": "2", "Ⅷ": "VIII", "…": "...",
    "e\u0301": "é", "n\u0303": "ñ", "\u200b": " ", "\ufeff": "",
}


def unigram():
    """As XLM-RoBERTa: a model of SentencePiece, which lies beside, with four tokens before and one behind its pieces."""
    import sentencepiece

    folder = HERE / "unigram"
    folder.mkdir(exist_ok=True)
    rules, file = folder / "rules.tsv", folder / "sentencepiece.bpe.model"
    letters = lambda text: " ".join(f"{ord(letter):X}" for letter in text)
    rules.write_text("".join(f"{letters(old)}\t{letters(new)}\n" for old, new in RULES.items()))
    with file.open("wb") as out:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([line for text in corpus() for line in text.splitlines()]), model_writer=out, vocab_size=250,
            model_type="unigram", normalization_rule_tsv=str(rules), minloglevel=2, num_threads=1,
        )
    rules.unlink()
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(file))
    os.environ["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] = "python"
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(file.read_bytes())
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    vocab = [(token, 0.0) for token in specials]
    vocab += [(pieces.id_to_piece(i), pieces.get_score(i)) for i in range(3, len(pieces))] + [("<mask>", 0.0)]
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=3, byte_fallback=False))
    tokenizer.normalizer = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(specials + ["<mask>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


def train(tokenizer, vocab_size, specials=()):
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)


def sequences(tokenizer, rng):
    """Token sequences that no text has: random ones, and bytes that are no UTF-8."""
    size = tokenizer.get_vocab_size()
    for _ in range(40):
        yield [rng.randrange(size) for _ in range(rng.randrange(1, 24))]
    byte_tokens = [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in range(256)]
    if byte_tokens[0] is None:
        byte_tokens = [tokenizer.token_to_id(c) for c in sorted(pre_tokenizers.ByteLevel.alphabet())]
    if None not in byte_tokens:
        for _ in range(60):
            yield [rng.choice(byte_tokens) for _ in range(rng.randrange(1, 12))]
        for _ in range(20):
            yield [rng.choice(byte_tokens + [size - 1, 1, 2]) for _ in range(rng.randrange(1, 12))]
    yield [size + 5, 0, size + 1_000_000, 5]


def documented(tokenizer, strips, ids, skip):
    """What this library decodes byte tokens to: whole characters are kept, every other byte is one U+FFFD.

    The second answer is whether a run of bytes has both: only there does the package tokenizers decode otherwise.
    """
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    text, run, mixed = "", b"", False

    def flush():
        nonlocal text, run, mixed
        replaced = run.decode(errors="replace").count("\ufffd")
        mixed |= bool(replaced) and bool(run.decode(errors="ignore"))
        while run:
            try:
                text, run = text + run.decode(), b""
            except UnicodeDecodeError as error:
                text += run[: error.start].decode() + "\ufffd" * (error.end - error.start)
                run = run[error.end :]

    for token in ids:
        spelling = tokenizer.id_to_token(token)
        if spelling is None or (skip and spelling in special):
            continue
        if len(spelling) == 6 and spelling.startswith("<0x"):
            run += bytes([int(spelling[3:5], 16)])
        else:
            flush()
            text += spelling.replace("▁", " ")
    flush()
    return text.removeprefix(" ") if strips else text, mixed


def record(name, tokenizer):
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    encoded = []
    for text_name, text in TEXTS.items():
        case = {"name": text_name, "text": text}
        for mode, parse in (("parsed", True), ("as_text", False)):
            tokenizer.encode_special_tokens = not parse
            case[mode] = tokenizer.encode(text, add_special_tokens=False).ids
            case[mode + "_with_added"] = tokenizer.encode(text, add_special_tokens=True).ids
        encoded.append(case)
    tokenizer.encode_special_tokens = False
    decoded, differing = [], 0
    decoder = json.loads(tokenizer.to_str())["decoder"]
    stages = [stage["type"] for stage in decoder.get("decoders", [])]
    sequences_of_texts = [case["parsed_with_added"] for case in encoded]
    for ids in sequences_of_texts + list(sequences(tokenizer, random.Random(11))):
        case = {"tokens": ids}
        for mode, skip in (("skip", True), ("keep", False)):
            case[mode] = tokenizer.decode(ids, skip_special_tokens=skip)
            if "ByteFallback" in stages:
                ours, mixed = documented(tokenizer, "Strip" in stages, ids, skip)
                assert mixed or ours == case[mode], (ids, ours, case[mode])
                differing += ours != case[mode]
                case[mode] = ours
        decoded.append(case)
    print(name, tokenizer.get_vocab_size(), "tokens,", len(decoded), "sequences,", differing, "unlike the crate's")
    return {"tokenizer": name, "encoded": encoded, "decoded": decoded}


def main():
    makers = [byte_level, byte_level_bos, sentencepiece, metaspace, wordpiece]
    makers += [bert, unigram]
    makers += [byte_level_cases, byte_level_digits, blocks_without_prefix, blocks_first, blocks_and_marks]
    file = HERE / "tokenizers.json"
    expected = {case["tokenizer"]: case for case in json.loads(file.read_text())} if file.exists() else {}
    for maker in makers:
        if not sys.argv[1:] or maker.__name__ in sys.argv[1:]:
            expected[maker.__name__] = record(maker.__name__, maker())
    file.write_text(json.dumps(list(expected.values()), ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
