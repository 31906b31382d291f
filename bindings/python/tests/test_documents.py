"""Every program of the documents and of examples/python runs. NANOVLLM_SOURCE is the source tree."""

import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from test_nanovllm import MODEL

SOURCE = Path(os.environ.get("NANOVLLM_SOURCE") or Path(__file__).parents[3])


def programs(document):
    """The Python blocks of a document, and the line that each begins on."""
    text = (SOURCE / document).read_text()
    return [(text.count("\n", 0, block.start()) + 2, block[1]) for block in re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S)]


def ran(document):
    """What the blocks of a document say, one after the other in one program, as a reader would type them."""
    known: dict = {"__name__": "__main__"}
    said = []
    before = os.getcwd()
    os.chdir(SOURCE)
    try:
        for line, block in programs(document):
            out = io.StringIO()
            with redirect_stdout(out), redirect_stderr(io.StringIO()):
                # The lines of tracebacks are those of the document.
                exec(compile("\n" * (line - 1) + block, document, "exec"), known)
            said.append(out.getvalue())
    finally:
        os.chdir(before)
    return said


HAS_ALL = all(importlib.util.find_spec(name) for name in ("numpy", "pydantic"))


class Documents(unittest.TestCase):
    @unittest.skipUnless(HAS_ALL, "needs numpy and pydantic")
    def test_the_page(self):
        said = "".join(ran("docs/python.md"))
        for wanted in (
            "I am the demo model of libnanovllm", "2, 3, 5, 7.", " length\n", "0.6", " 256\n", "cpu 4096\n", "(3, 256)", "You are welcome!", "True",
            "ERR_INVALID_ARGUMENT top_p is 7", "length error ", "5000 tokens",
        ):  # fmt: skip
            self.assertIn(wanted, said)
        self.assertRegex(said, "(yes|no), because ")

    def test_the_readme_files(self):
        for document in ("README.md", "bindings/python/README.md"):
            self.assertIn("I am the demo model of libnanovllm", "".join(ran(document)), document)


class Examples(unittest.TestCase):
    def run_example(self, name, *arguments, said="", returns=0):
        command = [sys.executable, SOURCE / "examples/python" / name, *arguments]
        run = subprocess.run(command, input=said, capture_output=True, text=True, timeout=120)
        self.assertEqual(run.returncode, returns, run.stderr)
        return run.stdout if returns == 0 else run.stderr

    def test_batch(self):
        lines = [json.loads(line) for line in self.run_example("batch.py", MODEL, said="introduce yourself\nthanks\n\nlist all prime numbers within 10").splitlines()]
        self.assertEqual([line["question"] for line in lines], ["introduce yourself", "thanks", "list all prime numbers within 10"])
        self.assertIn("demo model of libnanovllm", lines[0]["answer"])
        self.assertIn("2, 3, 5, 7.", lines[2]["answer"])
        self.assertEqual(lines[2]["finish_reason"], "stop")

    def test_chat(self):
        self.assertRegex(self.run_example("chat.py", MODEL, said="introduce yourself\nthanks\n"), r"(?s)> I am the demo model.*> .*elcome")

    def test_async_chat(self):
        said = self.run_example("async_chat.py", MODEL, "list all prime numbers within 10", "thanks")
        self.assertRegex(said, r"(?m)^1: list all .* -> .*2, 3, 5, 7\.$")
        self.assertRegex(said, r"(?m)^2: thanks -> ")

    def test_json_answer(self):
        self.assertRegex(self.run_example("json_answer.py", MODEL, "How warm is it?", "And there?"), r"^([^\n]*: -?\d+ degrees\n){2}$")

    @unittest.skipUnless(HAS_ALL, "needs numpy")
    def test_embed(self):
        said = self.run_example("embed.py", MODEL, "hello", "thanks", "hello").splitlines()
        self.assertEqual(said[0], "1.000  hello")
        self.assertRegex(said[1], r"^-?0\.\d{3}  thanks$")

    def test_what_is_missing_is_said(self):
        for name in ("batch.py", "chat.py", "async_chat.py", "json_answer.py", *(["embed.py"] if HAS_ALL else [])):
            self.assertIn(f"usage: {name} MODEL", self.run_example(name, returns=2))


if __name__ == "__main__":
    unittest.main()
