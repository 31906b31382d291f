"""The binding with the demo model. NANOVLLM_MODEL is its folder."""

import asyncio
import mmap
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import nanovllm
from nanovllm import AsyncEngine, Engine, Error, FileRange, Finish, Status

MODEL = os.environ.get("NANOVLLM_MODEL") or str(Path(__file__).parents[3] / "models/demo")
PRIMES = "list all prime numbers within 100"


def opened(**config):
    return Engine(MODEL, device="cpu", num_threads=1, **config)


def prompt(engine, text):
    return engine.apply_chat_template([{"role": "user", "content": text}])


class Files(unittest.TestCase):
    """A model from buffers and from parts of a file."""

    @classmethod
    def setUpClass(cls):
        cls.files = {path.name: path.read_bytes() for path in Path(MODEL).iterdir() if path.is_file()}
        with opened() as engine:
            cls.wanted = cls.answer(engine)

    @staticmethod
    def answer(engine):
        return engine.generate(prompt(engine, PRIMES), temperature=0, max_tokens=20)[0].token_ids

    def given(self, files, **config):
        return Engine(files=files, device="cpu", num_threads=1, **config)

    def test_buffers(self):
        weights = bytearray(self.files["model.safetensors"])
        files = {**self.files, "model.safetensors": weights, "config.json": memoryview(self.files["config.json"])}
        with self.given(files) as engine:
            self.assertEqual(self.answer(engine), self.wanted)
            with self.assertRaises(BufferError):
                weights.append(0)
        weights.append(0)
        with self.given(self.files, load_mode="read") as engine:
            weights.append(0)
            self.assertEqual(self.answer(engine), self.wanted)

    def test_parts_of_a_file(self):
        with tempfile.TemporaryFile() as pack:
            ranges = {}
            for name, data in self.files.items():
                pack.write(b"-")
                ranges["folder/" + name] = FileRange(pack, pack.tell(), len(data))
                pack.write(data)
            pack.flush()
            engine = Engine("folder", files=ranges, device="cpu", num_threads=1)
            with mmap.mmap(pack.fileno(), 0, access=mmap.ACCESS_READ) as whole:
                parts = {name: memoryview(whole)[r.offset : r.offset + r.size] for name, r in ranges.items()}
                with Engine("folder", files=parts, device="cpu", num_threads=1) as mapped:
                    self.assertEqual(self.answer(mapped), self.wanted)
                for part in parts.values():
                    part.release()
        with engine:
            self.assertEqual(self.answer(engine), self.wanted)

    def test_what_is_refused(self):
        with self.assertRaises(TypeError):
            Engine()
        with self.assertRaises(TypeError):
            self.given({"config.json": "text"})
        with self.assertRaises(ValueError):
            self.given({"a\0b": b""})
        with self.assertRaises(ValueError):
            self.given({"config.json": FileRange(0, -1, 1)})
        with self.assertRaises(TypeError):
            self.given({b"config.json": b""})
        with open(os.path.join(MODEL, "config.json"), "rb") as file:
            descriptor, size = file.fileno(), len(self.files["config.json"])
            for wrong, name in [
                (FileRange(descriptor + (1 << 64), 0, size), "the descriptor of a range"),
                (FileRange(descriptor, 1 << 64, size), "the offset of a range"),
                (FileRange(descriptor, 0, size + (1 << 64)), "the size of a range"),
            ]:
                with self.assertRaises(ValueError) as refused:
                    self.given({**self.files, "config.json": wrong})
                self.assertIn(name, str(refused.exception))
        for files, status in [
            ({"../config.json": b""}, Status.ERR_INVALID_ARGUMENT),
            ({"config.json": b""}, Status.ERR_MODEL),
            ({}, Status.ERR_MODEL),
            ({"config.json": FileRange(1 << 20, 0, 1)}, Status.ERR_IO),
        ]:
            with self.assertRaises(Error) as refused:
                self.given(files)
            self.assertEqual(refused.exception.status, status)


class Generating(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = opened()

    @classmethod
    def tearDownClass(cls):
        cls.engine.close()

    def test_all_ways_give_the_same_tokens(self):
        engine, asked = self.engine, prompt(self.engine, PRIMES)
        (whole,) = engine.generate(asked, temperature=0, max_tokens=40)
        self.assertEqual(whole.finish_reason, Finish.LENGTH)
        self.assertEqual(whole.completion_tokens, 40)
        self.assertIn("2", whole.text)

        streamed = list(engine.stream(asked, temperature=0, max_tokens=40))
        self.assertEqual([token for output in streamed for token in output.token_ids], whole.token_ids)
        self.assertEqual("".join(output.text for output in streamed), whole.text)
        self.assertTrue(streamed[-1].finished)

        (from_tokens,) = engine.generate(engine.tokenize(asked, parse_special=True), temperature=0, max_tokens=40)
        self.assertEqual(from_tokens.token_ids, whole.token_ids)
        self.assertEqual(engine.detokenize(whole.token_ids), whole.text)
        for text in ("one\0", "\0", "\0two\0\0"):
            self.assertEqual(engine.detokenize(engine.tokenize(text, special=False)), text)

        request = engine.add_request(asked, temperature=0, max_tokens=40, tag=7)
        tokens = []
        while not engine.is_finished():
            step = engine.step(0.01)
            self.assertGreater(step.elapsed, 0)
            while (output := engine.poll()) is not None:
                self.assertEqual((output.request_id, output.tag), (request, 7))
                tokens += output.token_ids
        self.assertEqual(tokens, whole.token_ids)

    def test_streams_are_read_by_turns_beside_requests(self):
        engine, asked = self.engine, prompt(self.engine, PRIMES)
        alone = engine.generate([asked, "Hello"], temperature=0, max_tokens=12)
        other = engine.add_request("Hello", temperature=0, max_tokens=12)
        texts = [[], []]
        streams = [engine.stream(text, temperature=0, max_tokens=12) for text in (asked, "Hello")]
        running = list(enumerate(streams))
        while running:
            for place, stream in list(running):
                try:
                    texts[place] += next(stream).token_ids
                except StopIteration:
                    running.remove((place, stream))
        self.assertEqual(texts, [one.token_ids for one in alone])
        polled = []
        while (output := engine.poll()) is not None:
            self.assertEqual(output.request_id, other)
            polled += output.token_ids
        self.assertEqual(polled, alone[1].token_ids)

    def test_a_stream_that_is_left_cancels_its_request(self):
        stream = self.engine.stream("Hello", max_tokens=1000, ignore_eos=True)
        next(stream)
        stream.close()
        while not self.engine.is_finished():
            self.engine.step()
            self.assertIsNone(self.engine.poll())
        self.assertEqual(self.engine.stats()["running"], 0)

    def test_options(self):
        engine = self.engine
        (two, three) = engine.generate(
            ["Hello", "Hello"], each=[{"temperature": 0, "max_tokens": 2}, {"temperature": 0, "max_tokens": 3}]
        )
        self.assertEqual((two.completion_tokens, three.completion_tokens), (2, 3))
        first = two.token_ids[0]
        (biased,) = engine.generate("Hello", temperature=0, max_tokens=1, logit_bias={first: float("-inf")})
        self.assertNotEqual(biased.token_ids[0], first)
        (stopped,) = engine.generate("Hello", temperature=0, max_tokens=3, stop_tokens=[first])
        self.assertEqual(stopped.finish_reason, Finish.STOP)
        repeating = "one: two, one:"
        tokens = engine.tokenize(repeating)
        wanted = tokens[tokens.index(tokens[-1]) + 1]
        dry = {"dry_multiplier": 1000, "dry_allowed_length": 1, "logit_bias": {wanted: 50}, "temperature": 0, "max_tokens": 1}
        for breakers, is_repeated in [(None, True), ([], False), (["x"], False), (["x", ":"], True)]:
            (next_one,) = engine.generate(repeating, dry_sequence_breakers=breakers, **dry)
            self.assertEqual(next_one.token_ids[0] == wanted, is_repeated, breakers)
        (told,) = engine.generate("Hello", temperature=0, max_tokens=2, num_logprobs=3, num_prompt_logprobs=1)
        self.assertEqual([len(told.logprobs), len(told.top_logprobs), len(told.top_logprobs[0])], [2, 2, 3])
        self.assertEqual(told.top_logprobs[0][0][0], told.token_ids[0])
        self.assertEqual(len(told.prompt_logprobs), told.prompt_tokens - 1)
        (digits,) = engine.generate("Hello", temperature=0, max_tokens=8, structure="[0-9]{3}", structure_kind="regex")
        self.assertRegex(digits.text, r"^[0-9]{3}$")
        (pooled,) = engine.generate("Hello", pooling="mean")
        self.assertEqual(len(pooled.embedding), engine.model_info()["hidden_size"])
        (several,) = engine.generate("Hello", n=3, max_tokens=2, temperature=1.0, seed=5)
        self.assertEqual([output.index for output in several.completions], [0, 1, 2])

    def test_default_options_are_options(self):
        engine, defaults = self.engine, self.engine.default_options()
        self.assertAlmostEqual(defaults["top_p"], 0.95, places=6)
        self.assertLessEqual(set(defaults), set(nanovllm.RequestOptions.__annotations__))
        given = {**defaults, "seed": 5, "max_tokens": 8}
        (one,) = engine.generate("Hello", **given)
        (other,) = engine.generate("Hello", seed=5, max_tokens=8)
        self.assertEqual(one.token_ids, other.token_ids)
        engine.cancel(engine.add_request("Hello", **defaults))
        while not engine.is_finished():
            engine.step()
            engine.poll()

    def test_the_length_of_an_array_is_no_option(self):
        with self.assertRaisesRegex(TypeError, "'num_device_indices' is not an option of an engine"):
            Engine(MODEL, device_indices=[0], num_device_indices=2)

    def test_what_is_wrong_is_said(self):
        engine = self.engine
        for options, error, text in [
            ({"temperatur": 1}, TypeError, "'temperatur' is not an option of a request"),
            ({"num_stop": 1}, TypeError, "is not an option"),
            ({"max_tokens": -1}, ValueError, "max_tokens is -1"),
            ({"max_tokens": 1 << 32}, ValueError, "must be from 0 to 4294967295"),
            ({"priority": 1 << 31}, ValueError, "must be from -2147483648 to 2147483647"),
            ({"max_tokens": "7"}, TypeError, "max_tokens is '7', but must be an integer"),
            ({"seed": float("inf")}, ValueError, "seed is inf, but must be an integer"),
            ({"logit_bias": {1 << 32: 1.0}}, ValueError, "a token of logit_bias is 4294967296"),
            ({"logit_bias": {-1: 1.0}}, ValueError, "a token of logit_bias is -1"),
            ({"pooling": "sum"}, ValueError, "must be one of none, last, mean"),
            ({"stop": ["a\0b"]}, ValueError, "NUL"),
            ({"dry_sequence_breakers": "a"}, TypeError, "must be a list of str"),
            ({"num_dry_sequence_breakers": 1}, TypeError, "is not an option"),
            ({"xtc_probability": 2.0}, Error, "xtc_probability"),
            ({"top_p": 3.0}, Error, "top_p"),
        ]:
            with self.assertRaises(error, msg=str(options)) as caught:
                engine.add_request("Hello", **options)
            self.assertIn(text, str(caught.exception))
        with self.assertRaises(Error) as caught:
            engine.add_request([1 << 31])
        self.assertEqual(caught.exception.status, Status.ERR_INVALID_ARGUMENT)
        again = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual((again.status, str(again)), (caught.exception.status, str(caught.exception)))
        with self.assertRaises(ValueError):
            engine.add_request([-1])
        with self.assertRaises(ValueError):
            engine.generate(["Hello"], each=[])
        self.assertFalse(engine.cancel(1 << 60))

    def test_numbers_that_do_not_fit_are_refused(self):
        engine, large = self.engine, 1 << 64
        for call, name in [
            (lambda: engine.cancel(large + 1), "request_id is 18446744073709551617"),
            (lambda: engine.cancel(-1), "request_id is -1"),
            (lambda: engine.release_prefix(large + 1), "request_id"),
            (lambda: engine.fork(large + 1), "request_id"),
            (lambda: engine.fork(1, 1 << 32), "index is 4294967296"),
            (lambda: engine.fork(1, -1), "index is -1"),
            (lambda: engine.save_prefix([1], cache_salt=large), "cache_salt"),
            (lambda: engine.step(large / 1e6), "budget"),
            (lambda: engine.step(float("inf")), "budget is inf"),
            (lambda: engine.step(float("nan")), "budget is nan"),
        ]:
            with self.assertRaises(ValueError) as caught:
                call()
            self.assertIn(name, str(caught.exception))
        self.assertEqual(engine.step(-1.0).running, 0)

    def test_bytes_are_no_prompt(self):
        engine = self.engine
        for given in (b"Hello", bytearray(b"Hello"), memoryview(b"Hello"), b""):
            for call in (engine.add_request, engine.generate, lambda one: engine.generate([one]), lambda one: next(engine.stream(one))):
                with self.assertRaisesRegex(TypeError, "a str or a sequence of token ids is wanted"):
                    call(given)
        with self.assertRaisesRegex(TypeError, "a sequence of token ids is wanted"):
            engine.add_request([1, "2"])

    def test_a_progress_that_raises_ends_the_call(self):
        def stop(finished, total):
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            self.engine.generate(["Hello"] * 3, max_tokens=500, ignore_eos=True, progress=stop)
        self.assertEqual(self.engine.generate([], max_tokens=2), [])

    def test_prefixes_and_forks(self):
        engine = self.engine
        tokens = engine.tokenize(prompt(engine, PRIMES) * 8, parse_special=True)
        engine.generate(tokens, temperature=0, max_tokens=1)
        saved, covered = engine.save_prefix(tokens)
        self.assertGreater(covered, 0)
        engine.reset_prefix_cache()
        before = engine.stats()["kv_cache_bytes_mapped"]
        freed = engine.trim()
        self.assertLessEqual(engine.stats()["kv_cache_bytes_mapped"] + freed, before)
        self.assertEqual(engine.trim(), 0)
        self.assertEqual(engine.restore_prefix(saved), covered)
        (hit,) = engine.generate(tokens, temperature=0, max_tokens=1)
        self.assertGreaterEqual(hit.cached_tokens, covered)
        with self.assertRaises(Error):
            engine.restore_prefix(saved[:-1])
        request = engine.add_request("Hello", temperature=0, max_tokens=20, ignore_eos=True)
        for _ in range(4):
            engine.step()
        fork = engine.fork(request, temperature=0, max_tokens=3, ignore_eos=True)
        ended = set()
        while len(ended) < 2:
            engine.step()
            while (output := engine.poll()) is not None:
                ended |= {output.request_id} if output.finished else set()
        self.assertEqual(ended, {request, fork})

    def test_statistics(self):
        self.assertGreater(self.engine.stats()["kv_blocks_total"], 0)
        self.assertIn("nanovllm_", self.engine.metrics_text())
        self.assertIn("cpu", str(nanovllm.build_info()).lower())
        self.assertRegex(nanovllm.version(), r"^\d+\.\d+\.\d+$")


class Opening(unittest.TestCase):
    def test_errors(self):
        with self.assertRaises(Error) as caught:
            Engine("/nonexistent")
        self.assertEqual(caught.exception.status, Status.ERR_IO)
        with self.assertRaises(TypeError):
            Engine(MODEL, gpu=1)
        with self.assertRaises(ValueError):
            Engine(MODEL, device="tpu")

    def test_paths(self):
        for path in (Path(MODEL), os.fsencode(MODEL)):
            Engine(path, device="cpu", num_threads=1).close()
        with self.assertRaises(TypeError):
            Engine(7)

    def test_progress(self):
        seen = []
        opened(progress=seen.append).close()
        self.assertEqual(seen[-1], 1.0)

        def refuse(_):
            raise RuntimeError("no")

        with self.assertRaisesRegex(RuntimeError, "no"):
            opened(progress=refuse)

    def test_a_closed_engine(self):
        engine = opened()
        with engine:
            pass
        engine.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            engine.add_request("Hello")

    def test_messages(self):
        seen = []
        nanovllm.log_to(lambda level, message: seen.append((level, message)))
        try:
            opened().close()
        finally:
            nanovllm.log_to(None)
        self.assertTrue(any("demo" in message or "blocks" in message for _, message in seen), seen)
        count = len(seen)
        opened().close()
        self.assertEqual(len(seen), count)

    def test_a_library_that_is_not_there(self):
        environment = {**os.environ, "NANOVLLM_LIBRARY": "/nonexistent.so"}
        run = subprocess.run([sys.executable, "-c", "import nanovllm"], env=environment, capture_output=True, text=True)
        self.assertIn("set NANOVLLM_LIBRARY to its path", run.stderr)


class Asynchronous(unittest.IsolatedAsyncioTestCase):
    async def test_tasks_share_an_engine(self):
        async with AsyncEngine(opened()) as engine:
            (alone,) = await engine.generate("Hello", temperature=0, max_tokens=16)
            together = await asyncio.gather(
                *(engine.generate("Hello", temperature=0, max_tokens=16) for _ in range(20))
            )
            for (one,) in together:
                self.assertEqual((one.token_ids, one.text), (alone.token_ids, alone.text))

    async def test_leaving_and_cancelling(self):
        async with AsyncEngine(opened()) as engine:
            async for _ in engine.stream("Hello", max_tokens=4000, ignore_eos=True):
                break

            async def read():
                async for _ in engine.stream("Hello", max_tokens=4000, ignore_eos=True):
                    pass

            task = asyncio.create_task(read())
            await asyncio.sleep(0.1)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            for _ in range(100):
                if engine.engine.is_finished():
                    break
                await asyncio.sleep(0.05)
            self.assertTrue(engine.engine.is_finished())

    async def test_closing_ends_streams(self):
        engine = AsyncEngine(opened())

        async def read():
            async for _ in engine.stream("Hello", max_tokens=4000, ignore_eos=True):
                pass

        task = asyncio.create_task(read())
        await asyncio.sleep(0.1)
        await asyncio.get_running_loop().run_in_executor(None, engine.close)
        with self.assertRaisesRegex(ValueError, "closed"):
            await task
        with self.assertRaisesRegex(ValueError, "closed"):
            await engine.generate("Hello")

    async def test_a_wrong_option_is_an_error_of_its_request_alone(self):
        async with AsyncEngine(opened()) as engine:
            with self.assertRaises(Error):
                await engine.generate("Hello", top_p=7.0)
            (fine,) = await engine.generate("Hello", max_tokens=2)
            self.assertEqual(fine.completion_tokens, 2)


class SlowAdds(unittest.IsolatedAsyncioTestCase):
    """Requests that take long to be added, as one does whose structure is compiled, delay nobody and get lost nowhere."""

    async def asyncSetUp(self):
        self.engine = AsyncEngine(opened())
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.added: list[int] = []
        add = self.engine.engine.add_request

        def add_slowly(prompt, **options):
            if prompt != "slow":
                return add(prompt, **options)
            self.begun.set()
            self.go_on.wait(5)
            self.added.append(add("Hello", **options))
            return self.added[-1]

        self.engine.engine.add_request = add_slowly
        self.addCleanup(self.go_on.set)

    async def asyncTearDown(self):
        self.go_on.set()
        await asyncio.get_running_loop().run_in_executor(None, self.engine.close)

    async def has_begun(self):
        await asyncio.get_running_loop().run_in_executor(None, self.begun.wait, 20)

    async def is_quiet(self):
        """Waits until nothing runs and no reader is left."""
        for _ in range(400):
            if self.engine.engine.is_finished() and not self.engine._readers and not self.engine._adding:
                return
            await asyncio.sleep(0.01)
        self.fail(f"{self.engine.engine.stats()}, {len(self.engine._readers)} readers")

    async def test_other_streams_go_on(self):
        ends = []

        async def run(prompt, **options):
            (output,) = await self.engine.generate(prompt, temperature=0, max_tokens=8, ignore_eos=True, **options)
            ends.append(prompt)
            return output

        fast = [asyncio.create_task(run("Hello")), asyncio.create_task(run("one", structure="[a-z]*", structure_kind="regex"))]
        slow = [asyncio.create_task(run("slow")) for _ in range(6)]
        await self.has_begun()
        fast.append(asyncio.create_task(run("two")))
        outputs = await asyncio.gather(*fast)
        self.assertEqual(sorted(ends), ["Hello", "one", "two"])
        self.go_on.set()
        late = await asyncio.gather(*slow)
        self.assertEqual([one.token_ids for one in late], [outputs[0].token_ids] * 6)

    async def test_structures_that_are_added_slowly_delay_no_plain_request(self):
        slow = [asyncio.create_task(self.engine.generate("slow", max_tokens=2, structure="[a-z]*", structure_kind="regex")) for _ in range(40)]
        await self.has_begun()
        (fast,) = await self.engine.generate("Hello", max_tokens=2, ignore_eos=True)
        self.assertEqual((fast.completion_tokens, self.added), (2, []))
        self.go_on.set()
        await asyncio.gather(*slow)
        self.assertEqual(len(self.added), 40)

    async def test_a_stream_that_is_cancelled_while_it_is_added_leaves_no_request(self):
        async def read():
            async for _ in self.engine.stream("slow", max_tokens=4000, ignore_eos=True):
                self.fail("nobody reads this")

        task = asyncio.create_task(read())
        await self.has_begun()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertEqual(self.added, [])
        self.go_on.set()
        await self.is_quiet()
        self.assertEqual(len(self.added), 1)
        self.assertFalse(self.engine.engine.cancel(self.added[0]))
        self.assertLess(self.engine.engine.stats()["generated_tokens"], 4000)

    async def test_a_stream_that_is_cancelled_before_its_turn_is_never_added(self):
        tasks = [asyncio.create_task(self.engine.generate("slow", max_tokens=2)) for _ in range(60)]
        await self.has_begun()
        for task in tasks[40:]:
            task.cancel()
        await asyncio.gather(*tasks[40:], return_exceptions=True)
        self.go_on.set()
        await asyncio.gather(*tasks[:40])
        await self.is_quiet()
        self.assertEqual(len(self.added), 40)

    async def test_closing_ends_streams_that_are_being_added(self):
        task = asyncio.create_task(self.engine.generate("slow", max_tokens=2))
        await self.has_begun()
        await asyncio.get_running_loop().run_in_executor(None, self.engine.close)
        with self.assertRaisesRegex(ValueError, "closed"):
            await task
        self.assertEqual(self.added, [])

    async def test_outputs_that_come_before_the_request_is_known_reach_their_stream(self):
        engine, done = self.engine.engine, threading.Event()
        add = engine.add_request

        def add_late(prompt, **options):
            request = add(prompt, **options)
            # Until the library has nothing of it any more.
            while not (engine.is_finished() and engine.stats()["generated_tokens"] >= 5):
                time.sleep(0.001)
            done.set()
            return request

        engine.add_request = add_late
        outputs = [output async for output in self.engine.stream("Hello", max_tokens=5, ignore_eos=True)]
        self.assertTrue(done.is_set())
        self.assertEqual((outputs[-1].completion_tokens, outputs[-1].finished), (5, True))
        self.assertEqual(sum(len(output.token_ids) for output in outputs), 5)
        self.assertEqual((self.engine._early, self.engine._readers), ({}, {}))

    async def test_a_request_that_is_refused_is_an_error_of_its_stream(self):
        task = asyncio.create_task(self.engine.generate("slow", top_p=7.0))
        await self.has_begun()
        self.go_on.set()
        with self.assertRaisesRegex(Error, "top_p"):
            await task
        with self.assertRaisesRegex(TypeError, "no_such_option"):
            await self.engine.generate("Hello", no_such_option=1)
        with self.assertRaisesRegex(Error, "structure"):
            await self.engine.generate("Hello", structure="(", structure_kind="regex")
        await self.is_quiet()


class Waiting(unittest.TestCase):
    def setUp(self):
        self.engine = opened()
        self.addCleanup(self.engine.close)

    def test_it_tells_whether_there_is_something_to_do(self):
        engine = self.engine
        self.assertFalse(engine.wait(0))
        self.assertFalse(engine.wait(0.15))
        self.assertFalse(engine.wait(-1))
        engine.add_request("Hello", max_tokens=2, ignore_eos=True)
        self.assertTrue(engine.wait())
        while engine.stats()["running"] + engine.stats()["waiting"] > 0:
            engine.step()
        self.assertTrue(engine.wait(), "outputs wait to be polled")
        while engine.poll() is not None:
            pass
        self.assertFalse(engine.wait(0))
        engine.wake()
        self.assertFalse(engine.wait(), "woken before")

    def test_threads_wait_until_requests_come(self):
        ended = []

        def serve():
            while len(ended) < 6:
                self.engine.wait()
                self.engine.step()
                while (output := self.engine.poll()) is not None:
                    ended.extend([output.request_id] * output.finished)

        server = threading.Thread(target=serve)
        server.start()
        ids = []
        for _ in range(6):
            ids.append(self.engine.add_request("Hello", max_tokens=3))
            time.sleep(0.01)
        server.join()
        self.assertEqual(sorted(ended), ids)

    def test_waking_and_closing_end_waits(self):
        found = []

        def wait():
            try:
                found.append(self.engine.wait())
            except ValueError as error:
                found.append(str(error))

        for end, wanted in ((self.engine.wake, [False]), (self.engine.close, ["the engine is closed"] * 4)):
            found.clear()
            threads = [threading.Thread(target=wait) for _ in wanted]
            for thread in threads:
                thread.start()
            time.sleep(0.05)
            end()
            for thread in threads:
                thread.join()
            self.assertEqual(found, wanted)
            if end == self.engine.wake:
                self.assertFalse(self.engine.wait(), "the next one, too")

    def test_a_signal_ends_the_wait_of_the_main_thread(self):
        program = """
import os, signal, threading, nanovllm
# A shell that runs in the background hands its children a SIGINT that is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
with nanovllm.Engine(os.environ["NANOVLLM_MODEL"], device="cpu", num_threads=1, kv_cache_bytes=16 << 20) as engine:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        engine.wait()
    except KeyboardInterrupt:
        print("interrupted")
"""
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        self.assertEqual((run.stdout, run.stderr), ("interrupted\n", ""))


class Threads(unittest.TestCase):
    def test_a_stream_that_is_added_slowly_delays_no_other(self):
        with opened() as engine:
            begun, go_on = threading.Event(), threading.Event()
            add = engine.add_request

            def add_slowly(prompt, **options):
                if prompt == "slow":
                    begun.set()
                    go_on.wait(5)
                return add("Hello", **options)

            engine.add_request = add_slowly
            late: list = []
            # Between its add and its first step others step, as in any program whose streams are read by several threads.
            slow = threading.Thread(target=lambda: late.append(engine.stream("slow", max_tokens=3, ignore_eos=True).__next__()))
            slow.start()
            begun.wait(20)
            fast = [output.token_ids for output in engine.stream("fast", temperature=0, max_tokens=3, ignore_eos=True)]
            self.assertEqual(sum(map(len, fast)), 3)
            request = engine.add_request("poll", max_tokens=3, ignore_eos=True)
            polled = []
            while not engine.is_finished():
                engine.step()
                while (output := engine.poll()) is not None:
                    polled.append(output.request_id)
            self.assertEqual(set(polled), {request})
            self.assertEqual(late, [])
            go_on.set()
            slow.join()
            self.assertEqual(len(late), 1)

    def test_requests_come_from_any_thread(self):
        with opened() as engine:
            ids = []
            threads = [
                threading.Thread(target=lambda: ids.append(engine.add_request("Hello", max_tokens=4))) for _ in range(8)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            ended = set()
            while not engine.is_finished():
                engine.step()
                while (output := engine.poll()) is not None:
                    ended |= {output.request_id} if output.finished else set()
            self.assertEqual(ended, set(ids))


if __name__ == "__main__":
    unittest.main()
