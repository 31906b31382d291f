"""progress=True: a bar of tqdm where it is installed, else one line."""

import asyncio
import io
import sys
import unittest
from contextlib import redirect_stderr
from unittest import mock

from nanovllm import AsyncEngine
from test_nanovllm import MODEL, opened

try:
    import tqdm
except ImportError:
    tqdm = None


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(stream, call):
    with redirect_stderr(stream):
        call()
    return stream.getvalue()


class Showing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = opened()
        cls.addClassCleanup(cls.engine.close)

    def generate(self):
        self.engine.generate(["Hello"] * 3, n=2, max_tokens=5, ignore_eos=True, progress=True)

    def test_a_line_where_there_is_no_tqdm(self):
        with mock.patch.dict(sys.modules, {"tqdm": None, "tqdm.auto": None}):
            self.assertRegex(shown(io.StringIO(), self.generate), r"^nanovllm: 6 of 6 completions, 30 tokens, \d+ tokens/s\n$")
            with mock.patch("nanovllm.progress._INTERVAL", 0):
                states = shown(Terminal(), self.generate)
        # It moves with the tokens, before any completion has ended.
        self.assertRegex(states, r"\rnanovllm: 0 of 6 completions, [1-9]\d* tokens.*\r.*\rnanovllm: 6 of 6 completions, 30 tokens")
        self.assertTrue(states.endswith("\n"))

    @unittest.skipIf(tqdm is None, "needs tqdm")
    def test_a_bar(self):
        said = shown(io.StringIO(), self.generate)
        self.assertRegex(said, r"nanovllm: 100%.*6/6 .*30 tokens, \d+ tokens/s")

    def test_mixed_prompts_and_embeddings(self):
        with mock.patch.dict(sys.modules, {"tqdm": None, "tqdm.auto": None}):
            mixed = shown(io.StringIO(), lambda: self.engine.generate(["Hello", [5]], max_tokens=5, ignore_eos=True, progress=True))
            vectors = shown(io.StringIO(), lambda: self.engine.embed(["Hello", "two"], progress=True))
        self.assertIn("2 of 2 completions, 10 tokens", mixed)
        self.assertIn("2 of 2 completions, 0 tokens", vectors)

    def test_an_async_engine_and_opening(self):
        async def run():
            async with AsyncEngine(MODEL, device="cpu", num_threads=1, progress=True) as engine:
                await engine.generate(["Hello", [5]], max_tokens=5, ignore_eos=True, progress=True)

        with mock.patch.dict(sys.modules, {"tqdm": None, "tqdm.auto": None}):
            said = shown(io.StringIO(), lambda: asyncio.run(run()))
        self.assertRegex(said, r"^nanovllm: loaded\nnanovllm: 2 of 2 completions, 10 tokens")

    def test_nothing_is_shown_unasked(self):
        self.assertEqual(shown(io.StringIO(), lambda: self.engine.generate("Hello", max_tokens=2)), "")
        self.assertEqual(shown(io.StringIO(), lambda: self.engine.generate("Hello", max_tokens=2, progress=False)), "")


if __name__ == "__main__":
    unittest.main()
