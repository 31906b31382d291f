"""What generate takes and returns: prompts of both kinds, results, names, defaults, and messages that name an argument."""

import asyncio
import copy
import json
import pickle
import unittest
from unittest import mock

import nanovllm
from nanovllm import AsyncEngine, Device, Engine, Error, Finish, Output, Result, Status, _abi
from test_nanovllm import MODEL, PRIMES, opened, prompt

try:
    import numpy
except ImportError:
    numpy = None


class Results(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = opened()
        cls.addClassCleanup(cls.engine.close)

    def test_a_result_is_its_first_completion(self):
        asked = prompt(self.engine, PRIMES)
        hello, primes = self.engine.generate(["Hello", asked], n=2, max_tokens=4, temperature=5.0, top_k=0, top_p=1.0, seed=7, ignore_eos=True)
        self.assertEqual((hello.prompt, primes.prompt), ("Hello", asked))
        for result in (hello, primes):
            self.assertIsInstance(result, Output)
            self.assertEqual([one.index for one in result.completions], [0, 1])
            self.assertEqual((result.text, result.token_ids), (result.completions[0].text, result.completions[0].token_ids))
            self.assertEqual(result.usage.completion_tokens, 8)
            self.assertEqual(result.usage.total_tokens, result.prompt_tokens + 8)
        self.assertNotEqual(primes.completions[0].token_ids, primes.completions[1].token_ids)
        again = pickle.loads(pickle.dumps(primes))
        self.assertEqual((again, again.usage), (primes, primes.usage))

    def test_cached_tokens_are_counted(self):
        asked = prompt(self.engine, PRIMES) * 4
        self.engine.generate(asked, max_tokens=1)
        (hit,) = self.engine.generate(asked, max_tokens=1)
        self.assertGreater(hit.usage.cached_tokens, 0)
        self.assertLess(hit.usage.cached_tokens, hit.usage.prompt_tokens)

    def test_texts_and_tokens_in_one_call(self):
        engine, asked = self.engine, prompt(self.engine, PRIMES)
        given = ["Hello", engine.tokenize(asked, parse_special=True), asked, engine.tokenize("Hello")]
        seen = []
        mixed = engine.generate(given, temperature=0, max_tokens=12, progress=lambda finished, total: seen.append((finished, total)))
        alike = engine.generate(["Hello", asked], temperature=0, max_tokens=12)
        self.assertEqual([one.token_ids for one in mixed], [alike[at].token_ids for at in (0, 1, 1, 0)])
        self.assertEqual([one.text for one in mixed], [alike[at].text for at in (0, 1, 1, 0)])
        self.assertEqual([one.prompt for one in mixed], given)
        self.assertEqual(seen[-1], (4, 4))
        self.assertEqual(seen, sorted(seen))
        self.assertTrue(engine.is_finished())

    def test_tokens_of_experts(self):
        with opened(expert_statistics=True) as counting:
            self.assertEqual(counting.expert_tokens(0), [])
            with self.assertRaisesRegex(Error, "layer is 1000"):
                counting.expert_tokens(1000)
        with self.assertRaisesRegex(Error, "expert_statistics"):
            self.engine.expert_tokens(0)

    def test_scores_of_tokens(self):
        texts = ["an iron sword", "a loaf of bread", "an iron sword"]
        scores = self.engine.score(texts, score_tokens=[40, 41, 7])
        self.assertEqual([len(one) for one in scores], [3, 3, 3])
        for one in scores:
            self.assertAlmostEqual(sum(one), 1.0, places=5)
        self.assertEqual(scores[0], scores[2])
        self.assertNotEqual(scores[0], scores[1])
        self.assertAlmostEqual(self.engine.score(texts[0], score_tokens=[7, 40])[0], scores[0][2] / (scores[0][2] + scores[0][0]), places=5)
        for wrong, message in (([4, 5, 4], "token 4 twice"), ([1 << 20], "beyond the vocabulary")):
            with self.assertRaisesRegex(Error, message):
                self.engine.score("an iron sword", score_tokens=wrong)
        with self.assertRaises(Error):
            self.engine.score("an iron sword", "a loaf of bread", score_tokens=[4, 5])
        with self.assertRaisesRegex(Error, "no classifier"):
            self.engine.score("an iron sword")

    def test_a_prompt_that_cannot_run_beside_others(self):
        long = [5] * 5000
        for given in (["Hello", long], [[5, 6], long]):
            fine, refused = self.engine.generate(given, max_tokens=2, ignore_eos=True)
            self.assertEqual((fine.finish_reason, fine.completion_tokens), ("length", 2))
            self.assertEqual((refused.finish_reason, refused.error.status, refused.prompt), ("error", Status.ERR_CONTEXT_LENGTH, long))
            self.assertIn("5000 tokens", str(refused.error))
        for given in ("prime " * 5000, long):
            with self.assertRaisesRegex(Error, "tokens"):
                self.engine.generate(given)
        for given in (["Hello", [5]], ["Hello", "two"], "Hello"):
            with self.assertRaisesRegex(Error, "top_p"):
                self.engine.generate(given, top_p=7.0)

    def test_a_mixed_call_in_a_short_queue(self):
        with opened(max_queue=2) as engine:
            given = ["Hello", [5, 6]] * 8
            results = engine.generate(given, temperature=0, max_tokens=3, ignore_eos=True)
            self.assertEqual([one.completion_tokens for one in results], [3] * 16)
            self.assertEqual([one.token_ids for one in results[::2]], [results[0].token_ids] * 8)

    def test_a_mixed_call_that_is_ended_leaves_nothing(self):
        def stop(finished, total):
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            self.engine.generate(["Hello", [5]], max_tokens=500, ignore_eos=True, progress=stop)
        while not self.engine.is_finished():
            self.engine.step()
            self.assertIsNone(self.engine.poll())
        self.assertEqual(self.engine.stats()["running"], 0)

    def test_max_tokens(self):
        engine = self.engine
        self.assertEqual(engine.default_options()["max_tokens"], nanovllm.DEFAULT_MAX_TOKENS)
        for call in (lambda **options: engine.generate("Hello", **options)[0], lambda **options: list(engine.stream("Hello", **options))[-1]):
            self.assertEqual(call(ignore_eos=True).completion_tokens, 256)
            self.assertEqual(call(ignore_eos=True, min_tokens=300).completion_tokens, 300)
        whole = engine.generate("Hello", max_tokens=None, ignore_eos=True)[0]
        self.assertEqual(whole.completion_tokens + whole.prompt_tokens, engine.model_info()["max_model_len"])

    def test_a_cache_that_does_not_hold_the_default(self):
        with opened(kv_cache_bytes=1 << 19) as engine:
            capacity = engine.model_info()["num_kv_blocks"] * engine.model_info()["kv_block_size"]
            self.assertLess(capacity, 256)
            (result,) = engine.generate("Hello", ignore_eos=True)
            self.assertEqual((result.finish_reason, result.completion_tokens), ("length", capacity - result.prompt_tokens))
            with self.assertRaisesRegex(Error, "kv_cache_bytes"):
                raise engine.generate("Hello", max_tokens=256)[0].error

    @unittest.skipIf(numpy is None, "needs numpy")
    def test_tokens_of_numpy(self):
        tokens = self.engine.tokenize("Hello there")
        wanted, one = (self.engine.generate(given, temperature=0, max_tokens=4)[0].token_ids for given in (tokens, numpy.array(tokens)))
        self.assertEqual(one, wanted)
        rows = self.engine.generate(numpy.array([tokens, tokens]), temperature=numpy.float32(0), max_tokens=numpy.int64(4))
        self.assertEqual([row.token_ids for row in rows], [wanted, wanted])

    def test_none_is_an_option_that_is_not_given(self):
        one, other = (self.engine.generate("Hello", max_tokens=4, seed=3, **more)[0] for more in ({}, {"temperature": None, "stop": None, "json_schema": None, "logit_bias": None}))
        self.assertEqual(one.token_ids, other.token_ids)


class Names(unittest.TestCase):
    def test_values_are_names_and_numbers(self):
        with opened() as engine:
            info = engine.model_info()
            self.assertEqual((info["device"], info["kv_cache_dtype"], info["embedding_coding"]), ("cpu", "auto", "bf16"))
            self.assertIs(info["device"], Device.CPU)
            self.assertIn('"device": "cpu"', json.dumps(info))
            self.assertEqual(engine.default_options()["pooling"], "none")
            finish = engine.generate("Hello", max_tokens=1, ignore_eos=True)[0].finish_reason
        self.assertEqual((finish, f"{finish}", str(finish), repr(finish), int(finish)), ("length", "length", "length", "'length'", 2))
        self.assertTrue(finish == 2 and finish == Finish.LENGTH and finish in {"length", "stop"} and finish != "stop" and finish != 1)
        self.assertIs(pickle.loads(pickle.dumps(finish)), finish)
        self.assertIs(copy.deepcopy(finish), finish)

    def test_members_are_found_by_all_their_spellings(self):
        for given in ("cpu", "CPU", 1, Device.CPU):
            self.assertIs(Device(given), Device.CPU)
            Engine(MODEL, device=given, num_threads=1).close()
        with self.assertRaisesRegex(ValueError, "'tpu' is no Device, but must be one of auto, cpu, cuda"):
            Device("tpu")

    def test_numbers_are_those_of_the_header(self):
        self.assertEqual([(member.value, member.number) for member in Finish], [("none", 0), ("stop", 1), ("length", 2), ("cancelled", 3), ("error", 4), ("expired", 5)])
        self.assertEqual(int(_abi.StructureKind.LARK), 3)


class Arguments(unittest.TestCase):
    """A wrong type is named by its argument."""

    CASES = [
        (lambda engine: engine.generate([None]), TypeError, "prompts[0] is None: a str or a sequence of token ids is wanted"),
        (lambda engine: engine.generate(["Hello", 7]), TypeError, "prompts[1] is 7: a str"),
        (lambda engine: engine.generate(None), TypeError, "prompts is None: a str"),
        (lambda engine: engine.generate({"prompt": "Hello"}), TypeError, "prompts is {'prompt': 'Hello'}: a str"),
        (lambda engine: engine.generate([[1, 2], [3, "4"]]), TypeError, "prompts[1][1] is '4': a str"),
        (lambda engine: engine.generate([[1], [-1]]), ValueError, "prompts[1][0] is -1, which is no token"),
        (lambda engine: engine.generate(["a", b"b"]), TypeError, "prompts[1] is bytes"),
        (lambda engine: engine.add_request(None), TypeError, "prompt is None: a str"),
        (lambda engine: next(engine.stream(3.5)), TypeError, "prompt is 3.5: a str"),
        (lambda engine: engine.chat(None), TypeError, "messages is None, but must be a str or a list of messages"),
        (lambda engine: engine.chat({"role": "user", "content": "x"}), TypeError, "messages is {'role': 'user', 'content': 'x'}, but must be"),
        (lambda engine: engine.chat(["Hello"]), TypeError, "messages[0] is 'Hello': a message is a dict"),
        (lambda engine: engine.chat([{"content": "x"}]), ValueError, "messages[0] has no role"),
        (lambda engine: engine.chat([{"role": "user"}]), ValueError, "messages[0] has no content"),
        (lambda engine: engine.chat([{"role": "user", "content": object}]), TypeError, "in a conversation is not JSON"),
        (lambda engine: engine.embed([None]), TypeError, "texts[0] is None: a str"),
        (lambda engine: engine.embed(["x", [1, None]]), TypeError, "texts[1][1] is None"),
        (lambda engine: engine.detokenize(None), TypeError, "tokens is None"),
        (lambda engine: engine.generate("x", temperature="hot"), TypeError, "temperature is 'hot', but must be a number"),
        (lambda engine: engine.generate("x", stop=5), TypeError, "stop is 5, but must be a str or a list of them"),
        (lambda engine: engine.generate("x", stop=[None]), TypeError, "stop is None, but must be a str"),
        (lambda engine: engine.generate("x", stop_tokens=5), TypeError, "stop_tokens is 5, but must be a list of integers"),
        (lambda engine: engine.generate("x", logit_bias=[1]), TypeError, "logit_bias is [1], but must be a dict"),
        (lambda engine: engine.generate("x", logit_bias={1: None}), TypeError, "logit_bias[1] is None, but must be a number"),
        (lambda engine: engine.generate("x", progress=7), TypeError, "progress is 7, but must be True or a function"),
        (lambda engine: engine.generate("x", json_schema=7), TypeError, "json_schema is 7, but must be a dict, JSON text or a model of pydantic"),
        (lambda engine: engine.generate("x", json_schema=int), TypeError, "json_schema is the class int"),
        (lambda engine: engine.generate("x", regex=7), TypeError, "regex is 7, but must be a str"),
        (lambda engine: engine.generate("x", regex="a", grammar="b"), TypeError, "regex and grammar are given"),
        (lambda engine: engine.generate("x", regex="a", structure="b"), TypeError, "regex and structure are given"),
        (lambda engine: Engine(7), TypeError, "model_path is 7, but must be the path"),
        (lambda engine: Engine(MODEL, progress=7), TypeError, "progress is 7"),
        (lambda engine: AsyncEngine(7), TypeError, "engine is 7, but must be an Engine, or the path"),
        (lambda engine: AsyncEngine(None), TypeError, "engine is None, but must be an Engine, or the path"),
        (lambda engine: AsyncEngine(engine, device="cpu"), TypeError, "device: options of opening a model"),
    ]  # fmt: skip

    def test_all(self):
        with opened() as engine:
            for call, kind, text in self.CASES:
                with self.assertRaises(kind, msg=text) as caught:
                    call(engine)
                self.assertIn(text, str(caught.exception))
            self.assertTrue(engine.is_finished())

    def test_the_same_of_an_async_engine(self):
        async def run():
            async with AsyncEngine(MODEL, device="cpu", num_threads=1) as engine:
                for call, text in [
                    (lambda: engine.generate([None]), "prompts[0] is None: a str"),
                    (lambda: engine.chat([7]), "messages[0] is 7: a message is a dict"),
                    (lambda: engine.embed([None]), "texts[0] is None: a str"),
                    (lambda: engine.generate("x", json_schema=7), "json_schema is 7"),
                ]:
                    with self.assertRaises(TypeError) as caught:
                        await call()
                    self.assertIn(text, str(caught.exception))

        asyncio.run(run())


class Asynchronous(unittest.IsolatedAsyncioTestCase):
    async def test_a_path_opens_a_model(self):
        async with AsyncEngine(MODEL, device="cpu", num_threads=1) as engine:
            (result,) = await engine.generate("Hello", temperature=0, max_tokens=3, ignore_eos=True)
            self.assertIsInstance(result, Result)
        async with await AsyncEngine.open(MODEL, device="cpu", num_threads=1) as engine:
            (again,) = await engine.generate("Hello", temperature=0, max_tokens=3, ignore_eos=True)
        self.assertEqual(result.token_ids, again.token_ids)
        with self.assertRaises(Error):
            await AsyncEngine.open("/nonexistent")

    async def test_results_are_those_of_the_engine(self):
        given = ["Hello", [5, 6], "list"]
        with opened() as engine:
            wanted = engine.generate(given, n=2, temperature=1.0, seed=5, max_tokens=6, num_logprobs=2, ignore_eos=True)
            seen = []
            async with AsyncEngine(engine) as served:
                results = await served.generate(
                    given, n=2, temperature=1.0, seed=5, max_tokens=6, num_logprobs=2, ignore_eos=True, progress=lambda *state: seen.append(state)
                )
        for result, other in zip(results, wanted):
            self.assertEqual((result.prompt, result.usage), (other.prompt, other.usage))
            for one, two in zip(result.completions, other.completions):
                self.assertEqual((one.token_ids, one.text, one.finish_reason, one.logprobs), (two.token_ids, two.text, two.finish_reason, two.logprobs))
        self.assertEqual(len(results), 3)
        self.assertEqual(seen[-1], (6, 6))

    async def test_a_prompt_that_cannot_run_beside_others(self):
        async with AsyncEngine(MODEL, device="cpu", num_threads=1) as engine:
            fine, refused = await engine.generate(["Hello", [5] * 5000], max_tokens=2, ignore_eos=True)
            self.assertEqual((fine.completion_tokens, refused.finish_reason, refused.error.status), (2, "error", Status.ERR_CONTEXT_LENGTH))
            with self.assertRaisesRegex(Error, "5000 tokens"):
                await engine.generate([5] * 5000)


    async def test_many_prompts_in_a_short_queue(self):
        async with AsyncEngine(MODEL, device="cpu", num_threads=1, max_queue=2) as engine:
            results = await engine.generate(["Hello", [5, 6]] * 8, temperature=0, max_tokens=3, ignore_eos=True)
        self.assertEqual([one.completion_tokens for one in results], [3] * 16)

    async def test_a_stream_that_is_closed_has_cancelled_its_request(self):
        async with AsyncEngine(MODEL, device="cpu", num_threads=1) as engine:
            for stream in (engine.stream("Hello", max_tokens=4000, ignore_eos=True), engine.chat_stream("Hello", max_tokens=4000, ignore_eos=True)):
                await stream.__anext__()
                with mock.patch.object(engine.engine, "cancel", wraps=engine.engine.cancel) as cancel:
                    await stream.aclose()
                cancel.assert_called_once()


if __name__ == "__main__":
    unittest.main()
