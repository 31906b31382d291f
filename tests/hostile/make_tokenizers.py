"""Writes tests/hostile/tokenizers: files of which each does one thing that a tokenizer.json should not.

tests/hostile_tokenizers.rs says what becomes of each. Run in the root of the repository.
"""

import base64
import copy
import json
import pathlib
import struct

FOLDER = pathlib.Path("tests/hostile/tokenizers")


def added(content, **options):
    token = {"id": 5, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": True}
    return {**token, **options}


BPE = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [added("<s>")],
    "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
    "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
              "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
              "vocab": {"<unk>": 0, "a": 1, "b": 2, " ": 3, "ab": 4}, "merges": [["a", "b"]]},
}
UNIGRAM = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0], ["b", -2.0]], "byte_fallback": False}
WORDPIECE = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
             "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "a": 1, "##a": 2}}
WORDLEVEL = {"type": "WordLevel", "unk_token": "<unk>", "vocab": {"<unk>": 0, "a": 1}}


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def split(pattern, kind="Regex", behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def normalizers(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


def decoders(*steps):
    return {"type": "Sequence", "decoders": list(steps)}


def charsmap(trie, texts, claimed=None):
    length = len(trie) * 4 if claimed is None else claimed
    data = struct.pack("<I", length) + b"".join(struct.pack("<I", unit) for unit in trie) + texts
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


def one_key(byte, value):
    """A trie that knows one byte: the root leads to 256, the byte to 512, where its value lies."""
    trie = [0] * 768
    trie[0] = 256 << 10
    trie[256 ^ byte] = (256 ^ byte ^ 512) << 10 | 1 << 8 | byte
    trie[512] = 1 << 31 | value
    return trie


def template(single, tokens=None):
    return {"type": "TemplateProcessing", "single": single,
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": tokens or {}}


def text(id="A"):
    return {"Sequence": {"id": id, "type_id": 0}}


def special(id):
    return {"SpecialToken": {"id": id, "type_id": 0}}


def nested(kind, parts, depth):
    step = {"type": kind, parts: []}
    for _ in range(depth):
        step = {"type": "Sequence", parts: [step]}
    return step


CASES = {
    # Ids and counts
    "id-billion": {"model.vocab.c": 10**9},
    "id-largest": {"model.vocab.c": 2**32 - 1},
    "id-beyond": {"model.vocab.c": 2**32},
    "id-negative": {"model.vocab.c": -1},
    "id-fraction": {"model.vocab.c": 1.5},
    "id-gap": {"model.vocab.c": 70000},
    "id-added-billion": {"added_tokens": [added("<s>", id=10**9)]},
    "vocabulary-empty": {"model.vocab": {}, "model.merges": []},
    "vocabulary-list-in-bpe": {"model.vocab": [["a", 0.0]]},
    "vocabulary-of-lists": {"model.vocab": {"a": [1]}},
    "ids-all-equal": {"model.vocab": {"a": 0, "b": 0, "ab": 0, "<unk>": 0}},
    "token-empty": {"model.vocab.": 5},
    "token-long": {"model.vocab": {"<unk>": 0, "x" * 5000: 1}, "model.merges": []},
    "unknown-missing": {"model.unk_token": "nonesuch"},
    "unknown-long": {"model.unk_token": "u" * 1000},
    "merge-of-nothing": {"model.merges": [["", ""]]},
    "merge-unknown": {"model.merges": [["a", "z"]]},
    "merge-three": {"model.merges": [["a", "b", "ab"]]},
    "merge-text-three": {"model.merges": ["a b ab"]},
    "merge-number": {"model.merges": [7]},
    "merge-prefix-longer": {"model.continuing_subword_prefix": "####"},
    "subword-prefix-long": {"model.continuing_subword_prefix": "#" * 5000},
    "dropout": {"model.dropout": 0.5},
    "dropout-beyond": {"model.dropout": 7},
    "byte-fallback-without-bytes": {"model.byte_fallback": True, "model.unk_token": None},
    "wordlevel-without-unknown": {"model": {**WORDLEVEL, "vocab": {"a": 0}}},
    "wordpiece-without-unknown": {"model": {**WORDPIECE, "vocab": {"a": 0}}},
    "wordpiece-long-words": {"model": {**WORDPIECE, "max_input_chars_per_word": 10**9}},
    "wordpiece-words-of-nothing": {"model": {**WORDPIECE, "max_input_chars_per_word": 0}},
    "unigram-unknown-beyond": {"model": {**UNIGRAM, "unk_id": 10**9}},
    "unigram-without-unknown": {"model": {**UNIGRAM, "unk_id": None}},
    "unigram-empty": {"model": {**UNIGRAM, "vocab": []}},
    "unigram-long-token": {"model": {**UNIGRAM, "vocab": [["<unk>", 0.0], ["a" * 500, 0.0]]}},
    "unigram-twins": {"model": {**UNIGRAM, "vocab": [["<unk>", 0.0], ["a", 1e308], ["a", -1e308]]}},
    "unigram-empty-token": {"model": {**UNIGRAM, "vocab": [["<unk>", 0.0], ["", 0.0], ["a", 0.0]]}},
    "model-of-no-type": {"model": {"vocab": {"a": 0}, "merges": []}},
    # Added tokens
    "added-empty": {"added_tokens": [added("")]},
    "added-long": {"added_tokens": [added("x" * 5000)]},
    "added-twice": {"added_tokens": [added("<s>"), added("<s>", special=False)]},
    "added-erased": {"added_tokens": [added("b", normalized=True), added("bb", normalized=True)],
                     "normalizer": replace("b", "")},
    "added-same-when-normalized": {"added_tokens": [added("A", normalized=True), added("a", normalized=True)],
                                   "normalizer": {"type": "Lowercase"}},
    "added-takes-spaces": {"added_tokens": [added("<s>", lstrip=True, rstrip=True, single_word=True)]},
    "added-no-list": {"added_tokens": {"id": 5}},
    # Normalizers
    "normalizer-replace-nothing": {"normalizer": replace("", "x")},
    "normalizer-replace-regex-nothing": {"normalizer": replace("a*", "x", "Regex")},
    "normalizer-replace-boundary": {"normalizer": replace(r"\b", "x", "Regex")},
    "normalizer-replace-chain": {"normalizer": normalizers(*[replace("a", "aa")] * 40)},
    "normalizer-replace-large": {"normalizer": replace("a", "b" * 5000)},
    "normalizer-prepend-chain": {"normalizer": normalizers(*[{"type": "Prepend", "prepend": "ab"}] * 30)},
    "normalizer-prepend-large": {"normalizer": {"type": "Prepend", "prepend": "a" * 5000}},
    "normalizer-many": {"normalizer": normalizers(*[{"type": "NFC"}] * 1000)},
    "normalizer-bytes-of-bytes": {"normalizer": normalizers(*[{"type": "ByteLevel"}] * 20)},
    "normalizer-deep": {"normalizer": nested("Sequence", "normalizers", 50)},
    "normalizer-unknown": {"normalizer": {"type": "Nonesuch"}},
    "normalizer-untyped": {"normalizer": {"pattern": {"String": ""}, "content": "x"}},
    "normalizer-untyped-chain": {"normalizer": {"normalizers": [{"type": "Prepend", "prepend": "ab"}] * 30}},
    "charsmap-empty": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}},
    "charsmap-null": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": None}},
    "charsmap-missing": {"normalizer": {"type": "Precompiled"}},
    "charsmap-no-base64": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "!!!!"}},
    "charsmap-short": {"normalizer": charsmap([], b"")},
    "charsmap-claims-4-GiB": {"normalizer": charsmap([], b"", claimed=2**32 - 1)},
    "charsmap-leads-out": {"normalizer": charsmap([2**31 - 1] * 256, b"a\0")},
    "charsmap-of-one-unit": {"normalizer": charsmap([0], b"a\0")},
    "charsmap-value-beyond": {"normalizer": charsmap(one_key(97, 70), b"\xc3\xa9\0")},
    "charsmap-good": {"normalizer": charsmap(one_key(97, 2), b"a\0bb\0")},
    "charsmap-round": {"normalizer": charsmap([1 << 8 | 97] * 1024, b"a\0")},
    "charsmap-inside-a-character": {"normalizer": charsmap(one_key(97, 1), b"\xc3\xa9\0")},
    "charsmap-grows": {"normalizer": charsmap(one_key(97, 0), b"x" * 3000 + b"\0")},
    # Pre-tokenizers
    "pre-fixed-length-0": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    "pre-fixed-length-negative": {"pre_tokenizer": {"type": "FixedLength", "length": -1}},
    "pre-fixed-length-huge": {"pre_tokenizer": {"type": "FixedLength", "length": 2**64 - 1}},
    "pre-split-nothing": {"pre_tokenizer": split("", "String")},
    "pre-split-regex-nothing": {"pre_tokenizer": split("(?=a)")},
    "pre-split-broken": {"pre_tokenizer": split("(")},
    "pre-split-counted": {"pre_tokenizer": split("((a{99}){99}){99}")},
    "pre-split-class-counted": {"pre_tokenizer": split(r"\p{L}{5000}")},
    "pre-split-deep": {"pre_tokenizer": split("(" * 2000 + "a" + ")" * 2000)},
    "pre-split-long": {"pre_tokenizer": split("a|" * 5000 + "b")},
    "pre-split-backtracks": {"pre_tokenizer": split("(?:a+)+(?!a|b|c)")},
    "pre-split-backtracks-nested": {"pre_tokenizer": split("(?:(?:a|b)*a*)*(?=c)")},
    "pre-split-quadratic": {"pre_tokenizer": split("a*c|a")},
    "pre-split-refers-back": {"pre_tokenizer": split(r"(a*)\1c|a")},
    "pre-split-looks-behind": {"pre_tokenizer": split(r"(?<=a+)b")},
    "pre-split-calls-itself": {"pre_tokenizer": split(r"(a(?1)?b)")},
    "pre-metaspace-two": {"pre_tokenizer": {"type": "Metaspace", "replacement": "ab", "prepend_scheme": "always"}},
    "pre-metaspace-chain": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}] * 20}},
    "pre-many": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}] * 500}},
    "pre-delimiter-empty": {"pre_tokenizer": {"type": "CharDelimiterSplit", "delimiter": ""}},
    # Post-processors
    "template-missing-token": {"post_processor": template([special("<x>"), text()])},
    "template-second-text": {"post_processor": template([text("B")])},
    "template-text-often": {"post_processor": template([text()] * 1000)},
    "template-tokens-often": {"post_processor": template(
        [special("x")] * 1000 + [text()], {"x": {"id": "x", "ids": [1] * 1000, "tokens": ["a"] * 1000}})},
    "template-uneven": {"post_processor": template(
        [special("x"), text()], {"x": {"id": "x", "ids": [1, 1], "tokens": []}})},
    "template-without-text": {"post_processor": template([special("x")], {"x": {"id": "x", "ids": [1], "tokens": ["a"]}})},
    "template-empty": {"post_processor": template([])},
    "template-chain": {"post_processor": {"type": "Sequence", "processors": [template([text(), text()])] * 20}},
    "bert-largest": {"post_processor": {"type": "BertProcessing", "sep": ["a", 2**32 - 1], "cls": ["b", 0]}},
    # Decoders
    "decoder-replace-nothing": {"decoder": replace("", "x")},
    "decoder-replace-chain": {"decoder": decoders(*[replace("a", "aa")] * 40)},
    "decoder-replace-regex": {"decoder": decoders(replace("a+b", "x", "Regex"))},
    "decoder-strip-huge": {"decoder": {"type": "Strip", "content": "a", "start": 0, "stop": 2**60}},
    "decoder-strip-start-huge": {"decoder": {"type": "Strip", "content": "a", "start": 2**60, "stop": 0}},
    "decoder-strip-both": {"decoder": {"type": "Strip", "content": "a", "start": 1, "stop": 1}},
    "decoder-strip-beyond": {"decoder": {"type": "Strip", "content": "a", "start": 0, "stop": 16}},
    "decoder-bpe-nothing": {"decoder": {"type": "BPEDecoder", "suffix": ""}},
    "decoder-ctc-nothing": {"decoder": {"type": "CTC", "pad_token": "", "word_delimiter_token": "", "cleanup": True}},
    "decoder-ctc-all": {"decoder": {"type": "CTC", "pad_token": "a", "word_delimiter_token": "b", "cleanup": True}},
    "decoder-wordpiece": {"decoder": {"type": "WordPiece", "prefix": "", "cleanup": True}},
    "decoder-erases": {"decoder": replace("[ab ]", "", "Regex")},
    "decoder-many": {"decoder": decoders(*[{"type": "Fuse"}] * 1000)},
    "decoder-number": {"decoder": 7},
    "decoder-unknown": {"decoder": {"type": "Nonesuch"}},
    # Truncation and padding, which are left out
    "padding-huge": {"padding": {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": 2**60,
                                 "pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>"}},
    "truncation-0": {"truncation": {"direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 5}},
    "truncation-stride": {"truncation": {"direction": "Left", "max_length": 4, "strategy": "OnlySecond", "stride": 9}},
    # The file
    "version-2": {"version": "2.0"},
    "part-unknown": {"extra": [1, 2, 3]},
}

#: Files that json.dumps does not write.
TEXTS = {
    "deep": '{"normalizer": ' + "[" * 20000 + "]" * 20000 + "}",
    "deep-in-model": '{"model": {"type": "BPE", "x": ' + '{"x":' * 5000 + "1" + "}" * 5000 + "}}",
    "not-utf8": b'{"model": "\xff\xfe"}',
    "twice": '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "model": {"type": "BPE", "vocab": {"a": 1000000000}, "merges": []}}',
    "twice-in-model": '{"model": {"type": "BPE", "vocab": {"a": 0}, "vocab": {"a": 1000000000}, "merges": []}}',
    "surrogate": '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "decoder": {"type": "BPEDecoder", "suffix": "\\ud800"}}',
    "surrogate-in-vocabulary": '{"model": {"type": "BPE", "vocab": {"\\udfff": 0}, "merges": []}}',
    "breaks-off-in-decoder": '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "decoder": {"type": "BPEDec',
    "empty": "",
    "null": "null",
    "list": "[]",
    "empty-object": "{}",
    "more-after-it": '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}} {}',
    "number-without-end": '{"model": {"type": "BPE", "vocab": {"a": 1' + "0" * 5000 + "}}}",
}


def changed(changes):
    whole = copy.deepcopy(BPE)
    for path, value in changes.items():
        *parents, last = path.split(".")
        place = whole
        for parent in parents:
            place = place[parent]
        place[last] = value
    return whole


for file in FOLDER.glob("*.json"):
    file.unlink()
for name, changes in CASES.items():
    (FOLDER / f"{name}.json").write_text(json.dumps(changed(changes), separators=(",", ":")))
for name, content in TEXTS.items():
    (FOLDER / f"{name}.json").write_bytes(content if isinstance(content, bytes) else content.encode())
print(len(CASES) + len(TEXTS), "files")
