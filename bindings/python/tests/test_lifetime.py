"""Closing, interrupting, copying and sharing an engine. What could crash the interpreter runs in one of its own."""

import asyncio
import copy
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import unittest
from ctypes import byref, sizeof

from nanovllm import AsyncEngine, Error, Finish, Status, _abi
from nanovllm._library import library
from test_nanovllm import MODEL, opened

PRELUDE = f"""
import mmap, os, random, sys, threading, time, traceback
from pathlib import Path
import nanovllm
def end(failed):
    traceback.print_exception(failed.exc_value)
    os._exit(1)
threading.excepthook = end
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
else:
    raise AssertionError("the call goes on")
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

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork")
    def test_a_failed_stream_says_why(self):
        self.run_alone("""
engine = opened()
stream = engine.stream("Hello", max_tokens=50, ignore_eos=True)
next(stream)
if os.fork() == 0:
    try:
        next(stream)
    except nanovllm.Error as error:
        os._exit(0 if "this is its fork" in str(error) and error.__context__ is None else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
print("passed")
""")


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
                with self.assertRaises(KeyboardInterrupt):
                    signal.setitimer(signal.ITIMER_REAL, 0.02 + 0.005 * attempt)
                    engine.generate(["Hello"] * 8, max_tokens=1500, ignore_eos=True)
                self.assertEqual((engine.stats()["running"], engine.stats()["waiting"], engine.is_finished()), (0, 0, True))
            self.assertEqual(engine.generate("Hello", max_tokens=2)[0].completion_tokens, 2)

    def test_opening_ends(self):
        for attempt in range(30):
            with self.assertRaises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.001 + 0.001 * attempt)
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


class Sharing(unittest.TestCase):
    """Streams, and other calls beside them."""

    def setUp(self):
        self.engine = opened()
        self.addCleanup(self.engine.close)

    def leave(self, **options):
        stream = self.engine.stream("Hello", max_tokens=500, ignore_eos=True, **options)
        next(stream)
        stream.close()

    def step_to_the_end(self):
        for _ in range(1000):
            if self.engine.is_finished():
                return
            self.engine.step()
        self.fail("the engine never finishes")

    def test_outputs_of_a_stream_that_was_left_are_dropped(self):
        for options in ({}, {"n": 3, "temperature": 1.0}, {}):
            self.leave(**options)
        self.step_to_the_end()
        self.assertIsNone(self.engine.poll())
        self.leave()
        other = self.engine.add_request("Hello", temperature=0, max_tokens=3, ignore_eos=True)
        polled = []
        while not self.engine.is_finished():
            self.engine.step()
            while (output := self.engine.poll()) is not None:
                polled.append(output)
        self.assertEqual({output.request_id for output in polled}, {other})
        self.assertTrue(polled[-1].finished)
        self.assertFalse(self.engine._inbox.has_left)

    def test_a_stream_cancelled_by_its_id_ends(self):
        stream = self.engine.stream("Hello", max_tokens=500, ignore_eos=True)
        self.assertTrue(self.engine.cancel(next(stream).request_id))
        self.assertEqual([output.finish_reason for output in stream][-1], Finish.CANCELLED)

    def test_a_stream_gets_what_another_thread_polls(self):
        engine, polled, refused = self.engine, [], set()

        def poll():
            while not engine.is_finished():
                try:
                    engine.step()
                    while (output := engine.poll()) is not None:
                        polled.append(output)
                except Error as error:
                    # The stream steps as well.
                    refused.add(error.status)

        thread = threading.Thread(target=poll)
        add = engine.add_request

        def add_slowly(*arguments, **options):
            request = add(*arguments, **options)
            thread.start()
            # Without the lock this is enough for the thread to take all outputs.
            thread.join(0.5)
            return request

        engine.add_request = add_slowly
        stream = engine.stream("Hello", max_tokens=5, ignore_eos=True)
        try:
            first = next(stream)
        except Error as error:
            self.assertEqual(error.status, Status.ERR_BUSY)
        else:
            thread.join()
            rest = list(stream)
            self.assertEqual([first, *rest][-1].completion_tokens, 5)
        thread.join()
        self.assertEqual(polled, [])
        self.assertLessEqual(refused, {Status.ERR_BUSY})

    def test_a_stream_whose_request_is_gone_raises(self):
        stream = self.engine.stream("Hello", max_tokens=5, ignore_eos=True)
        next(stream)
        while not self.engine.is_finished():
            self.engine.step()
            output = _abi.nvllm_output(struct_size=sizeof(_abi.nvllm_output))
            with self.engine._handle.enter() as native:
                while library.nvllm_poll_output(native, byref(output), None) == Status.OK:
                    pass
        with self.assertRaises(Error) as caught:
            next(stream)
        self.assertEqual(caught.exception.status, Status.ERR_NOT_FOUND)

    def test_two_calls_that_step(self):
        seen = []

        def progress(finished, total):
            for call in (self.engine.step, self.engine.trim, lambda: self.engine.generate("Hello")):
                try:
                    call()
                except Error as error:
                    seen.append(error.status)
            self.engine.stats(), self.engine.tokenize("Hello")

        self.engine.generate("Hello", max_tokens=2, ignore_eos=True, progress=progress)
        self.assertEqual(set(seen), {Status.ERR_BUSY})
        self.assertGreaterEqual(len(seen), 6)

    def test_streams_of_several_threads_end(self):
        statuses = []

        def read():
            try:
                statuses.append(list(self.engine.stream("Hello", max_tokens=20, ignore_eos=True))[-1].completion_tokens)
            except Error as error:
                statuses.append(error.status)

        threads = [threading.Thread(target=read, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(len(statuses), 4)
        self.assertLessEqual(set(statuses), {20, Status.ERR_BUSY})


class Asynchronous(unittest.IsolatedAsyncioTestCase):
    async def test_an_engine_that_is_closed_underneath_ends_its_streams(self):
        engine = AsyncEngine(opened())
        stream = engine.stream("Hello", max_tokens=1000, ignore_eos=True)
        await stream.__anext__()
        engine.engine.close()

        async def rest():
            async for _ in stream:
                pass

        # Not wait_for, whose cancellation would end it as well.
        task = asyncio.create_task(rest())
        await asyncio.wait([task], timeout=30)
        self.assertTrue(task.done())
        with self.assertRaisesRegex(ValueError, "closed"):
            await task
        with self.assertRaisesRegex(ValueError, "closed"):
            await asyncio.wait_for(engine.generate("Hello"), 30)
        engine.close()

    async def test_a_failing_cancellation_hides_nothing(self):
        async with AsyncEngine(opened()) as engine:

            def fail(request):
                raise Error(Status.ERR_DEVICE, "cannot cancel")

            engine.engine.cancel = fail
            task = asyncio.create_task(engine.generate("Hello", max_tokens=1000, ignore_eos=True))
            await asyncio.sleep(0.05)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task


if __name__ == "__main__":
    unittest.main()
