"""Closing, interrupting, copying and sharing an engine. What could crash the interpreter runs in one of its own."""

import copy
import pickle
import signal
import subprocess
import sys
import time
import unittest

from test_nanovllm import MODEL, opened

PRELUDE = f"""
import mmap, os, random, sys, threading, time
from pathlib import Path
import nanovllm
MODEL = {MODEL!r}
def opened(**config):
    return nanovllm.Engine(MODEL, device="cpu", num_threads=1, max_model_len=256, kv_cache_bytes=8 << 20, **config)
def mapped():
    files = {{path.name: path.read_bytes() for path in Path(MODEL).iterdir() if path.is_file()}}
    weights = mmap.mmap(-1, len(files["model.safetensors"]))
    weights[:] = files["model.safetensors"]
    engine = nanovllm.Engine(files={{**files, "model.safetensors": weights}}, device="cpu", num_threads=1)
    return engine, weights
def unmap(weights):
    try:
        weights.close()
        return True
    except BufferError:
        return False
"""


class Closing(unittest.TestCase):
    def run_alone(self, program):
        run = subprocess.run([sys.executable, "-c", PRELUDE + program], capture_output=True, text=True, timeout=120)
        self.assertEqual((run.returncode, run.stdout.strip()), (0, "passed"), run.stderr)

    def test_files_are_held_until_the_call_of_another_thread_has_ended(self):
        self.run_alone("""
engine, weights = mapped()
began, closed, errors = threading.Event(), threading.Event(), []
def progress(finished, total):
    began.set()
    closed.wait()
def generate():
    try:
        engine.generate(["Hello"] * 4, max_tokens=2000, ignore_eos=True, progress=progress)
    except nanovllm.Error as error:
        errors.append(error)
thread = threading.Thread(target=generate, daemon=True)
thread.start()
began.wait()
engine.close()
assert not unmap(weights), "the engine still reads them"
closed.set()
thread.join()
assert [error.status for error in errors] == [nanovllm.Status.ERR_CANCELLED], errors
assert "closed during the call" in str(errors[0])
assert unmap(weights)
print("passed")
""")

    def test_files_are_held_until_the_call_of_a_callback_has_ended(self):
        self.run_alone("""
engine, weights = mapped()
def progress(finished, total):
    engine.close()
    assert not unmap(weights), "the engine still reads them"
try:
    engine.generate("Hello", max_tokens=2000, ignore_eos=True, progress=progress)
except nanovllm.Error as error:
    assert error.status == nanovllm.Status.ERR_CANCELLED, error
assert unmap(weights)
print("passed")
""")

    def test_closing_races_with_other_calls(self):
        self.run_alone("""
def ask(engine):
    try:
        while True:
            engine.stats(), engine.tokenize("Hello"), engine.is_finished(), engine.cancel(1), engine.add_request("Hello")
    except ValueError as error:
        assert str(error) == "the engine is closed", error
def step(engine):
    try:
        while True:
            try:
                engine.step()
                engine.poll()
            except nanovllm.Error as error:
                assert error.status == nanovllm.Status.ERR_BUSY, error
    except ValueError as error:
        assert str(error) == "the engine is closed", error
for _ in range(60):
    engine = opened(max_queue=100000)
    threads = [threading.Thread(target=call, args=(engine,)) for call in (ask, ask, step, step)]
    for thread in threads:
        thread.start()
    time.sleep(0.003 * random.random())
    closers = [threading.Thread(target=engine.close) for _ in range(2)]
    for thread in closers:
        thread.start()
    for thread in threads + closers:
        thread.join()
print("passed")
""")

    def test_every_call_of_a_closed_engine_is_refused(self):
        engine = opened()
        stream = engine.stream("Hello", max_tokens=9, ignore_eos=True)
        next(stream)
        engine.close()
        engine.close()
        calls = [
            engine.stats, engine.model_info, engine.metrics_text, engine.default_options, engine.step, engine.poll, engine.is_finished,
            engine.trim, engine.reset_prefix_cache, lambda: engine.cancel(1), lambda: engine.release_prefix(1), lambda: engine.fork(1),
            lambda: engine.tokenize("Hello"), lambda: engine.detokenize([1]), lambda: engine.apply_chat_template([]),
            lambda: engine.save_prefix([1]), lambda: engine.restore_prefix(b""), lambda: engine.generate("Hello"),
            lambda: engine.generate("Hello", max_tokens=1), lambda: engine.add_request("Hello"), lambda: next(stream),
        ]  # fmt: skip
        for call in calls:
            with self.assertRaisesRegex(ValueError, "the engine is closed"):
                call()

    def test_an_engine_stays_in_its_process(self):
        with opened() as engine:
            for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
                with self.assertRaisesRegex(TypeError, "cannot be copied or pickled"):
                    attempt(engine)
            self.assertEqual(len(engine.generate("Hello", max_tokens=2)), 1)


@unittest.skipUnless(hasattr(signal, "setitimer"), "needs timers of POSIX")
class Interrupting(unittest.TestCase):
    """The handler is that of Ctrl-C."""

    def setUp(self):
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)

    def test_generate_ends(self):
        with opened(max_num_seqs=4) as engine:
            for attempt in range(6):
                signal.setitimer(signal.ITIMER_REAL, 0.02 + 0.005 * attempt)
                with self.assertRaises(KeyboardInterrupt):
                    engine.generate(["Hello"] * 8, max_tokens=1500, ignore_eos=True)
                self.assertEqual((engine.stats()["running"], engine.stats()["waiting"], engine.is_finished()), (0, 0, True))
            self.assertEqual(engine.generate("Hello", max_tokens=2)[0].completion_tokens, 2)

    def test_opening_ends(self):
        for attempt in range(30):
            signal.setitimer(signal.ITIMER_REAL, 0.001 + 0.001 * attempt)
            with self.assertRaises(KeyboardInterrupt):
                # Where the engine has opened before the signal, the signal ends the sleep.
                with opened():
                    time.sleep(20)

    def test_opening_ends_at_any_report(self):
        # The library's last report comes when the engine is as good as open.
        for wanted in (0.0, 1.0):

            def interrupt(fraction, wanted=wanted):
                if fraction >= wanted:
                    signal.raise_signal(signal.SIGALRM)

            with self.assertRaises(KeyboardInterrupt):
                opened(progress=interrupt)


if __name__ == "__main__":
    unittest.main()
