"""Conversations, structured output and embeddings, of both engines."""

import asyncio
import json
import math
import sys
import threading
import unittest
from unittest import mock

from nanovllm import AsyncEngine, Error, Finish, Result
from test_nanovllm import MODEL, PRIMES, opened, prompt

try:
    import numpy
except ImportError:
    numpy = None
try:
    import pydantic
except ImportError:
    pydantic = None

MESSAGES = [{"role": "user", "content": PRIMES}]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 10}, "prime": {"type": "boolean"}},
    "required": ["name", "prime"],
    "additionalProperties": False,
}


SHOP = [
    {
        "type": "function",
        "function": {
            "name": "give_item",
            "parameters": {
                "type": "object",
                "properties": {"item": {"enum": ["sword", "rope"]}, "count": {"type": "integer", "minimum": 1, "maximum": 9}},
                "required": ["item", "count"],
                "additionalProperties": False,
            },
        },
    }
]


class Tools(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = opened(max_model_len=1024)
        cls.addClassCleanup(cls.engine.close)

    def check_call(self, call):
        self.assertEqual((call["type"], call["function"]["name"]), ("function", "give_item"))
        arguments = call["function"]["arguments"]
        self.assertIn(arguments["item"], ("sword", "rope"))
        self.assertIn(arguments["count"], range(1, 10))
        self.assertEqual(len(arguments), 2)

    def test_a_required_call_is_valid_whatever_the_model_thinks(self):
        options = {"temperature": 8, "seed": 3, "n": 4, "max_tokens": 200, "tool_choice": "required", "parallel_tool_calls": False}
        result = self.engine.chat("a sword, please", tools=SHOP, template={"enable_thinking": False}, **options)
        for one in result.completions:
            self.assertEqual(one.finish_reason, Finish.STOP)
            message = self.engine.answer(one.text, result.prompt, SHOP)
            self.assertEqual(message["role"], "assistant")
            (call,) = message["tool_calls"]
            self.check_call(call)
        self.engine.chat([*MESSAGES, message, {"role": "tool", "content": "done"}], tools=SHOP, max_tokens=1)

    def test_an_asyncio_conversation_has_tools_too(self):
        async def ask():
            async with AsyncEngine(MODEL, max_model_len=1024) as engine:
                options = {"temperature": 8, "seed": 4, "max_tokens": 200, "tool_choice": "named", "tool_name": "give_item"}
                result = await engine.chat("a rope", tools=SHOP, template={"enable_thinking": False}, parallel_tool_calls=False, **options)
                return engine.engine.answer(result.text, result.prompt, SHOP)

        (call,) = asyncio.run(ask())["tool_calls"]
        self.check_call(call)

    def test_events_come_while_the_answer_is_written(self):
        answer = 'Hm.</think>Here.<tool_call>\n{"name": "give_item", "arguments": {"item": "rope", "count": 2}}\n</tool_call>'
        for size in (1, 3, len(answer)):
            with self.engine.answer_parser("<|im_start|>assistant\n<think>\n", SHOP) as parser:
                events = [event for at in range(0, len(answer), size) for event in parser.feed(answer[at : at + size])]
                events += parser.finish()
                texts = {}
                for event in events:
                    texts[str(event.kind)] = texts.get(str(event.kind), "") + event.text
                arguments = '{"item":"rope","count":2}'
                wanted = {"reasoning": "Hm.", "content": "Here.", "tool_call_begin": "give_item", "tool_call_arguments": arguments, "tool_call_end": ""}
                self.assertEqual(texts, wanted)
                self.assertEqual(parser.message["reasoning_content"], "Hm.")
                with self.assertRaisesRegex(Error, "has ended the answer"):
                    parser.feed("more")
            with self.assertRaisesRegex(ValueError, "closed"):
                parser.finish()

    def test_reasoning_is_bounded(self):
        prompt = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n<think>\n"
        (end,) = self.engine.tokenize("</think>", special=False, parse_special=True)
        options = {"ignore_eos": True, "logit_bias": {end: -1e9}, "max_tokens": 12, "temperature": 0}
        (result,) = self.engine.generate(prompt, max_thinking_tokens=5, **options)
        self.assertEqual((result.reasoning_tokens, result.token_ids.index(end)), (5, 5))
        (result,) = self.engine.generate(prompt, **options)
        self.assertEqual(result.reasoning_tokens, 0)

    def test_bad_tools_are_refused(self):
        for tools, wanted in [([1], "tools"), ("{", "EOF"), ({}, "list of dicts"), (b"[]", "list of dicts")]:
            with self.assertRaisesRegex((Error, TypeError), wanted):
                self.engine.generate("hello", tools=tools)
        with self.assertRaisesRegex(ValueError, "tool_choice is 'some', but must be one of auto, none, required, named"):
            self.engine.generate("hello", tools=SHOP, tool_choice="some")


class Chat(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = opened()
        cls.addClassCleanup(cls.engine.close)

    def test_all_ways_give_the_same_answer(self):
        engine, options = self.engine, {"temperature": 0, "max_tokens": 40}
        (wanted,) = engine.generate(prompt(engine, PRIMES), **options)
        answer = engine.chat(MESSAGES, **options)
        self.assertIsInstance(answer, Result)
        self.assertEqual((answer.text, answer.prompt), (wanted.text, wanted.prompt))
        self.assertIn("2, 3, 5, 7", answer.text)
        self.assertEqual(engine.chat(PRIMES, **options).text, wanted.text)
        self.assertEqual("".join(output.text for output in engine.chat_stream(PRIMES, **options)), wanted.text)

        async def run():
            async with AsyncEngine(MODEL, device="cpu", num_threads=1) as served:
                answer = await served.chat(MESSAGES, **options)
                self.assertEqual((answer.text, answer.prompt, answer.usage.completion_tokens), (wanted.text, wanted.prompt, wanted.completion_tokens))
                self.assertEqual("".join([output.text async for output in served.chat_stream(PRIMES, **options)]), wanted.text)
                with self.assertRaisesRegex(ValueError, "messages\\[0\\] has no role"):
                    async for _ in served.chat_stream([{}]):
                        self.fail("there is no answer")

        asyncio.run(run())

    def test_templates_get_their_variables(self):
        seen = []
        with mock.patch.object(self.engine, "apply_chat_template", lambda messages, **variables: seen.append((messages, variables)) or "Hello"):
            tools = [{"type": "function", "function": {"name": "now"}}]
            self.engine.chat(PRIMES, tools=tools, template={"enable_thinking": False}, max_tokens=1)
        self.assertEqual(seen, [(MESSAGES, {"tools": tools, "enable_thinking": False})])

    def test_a_conversation_that_cannot_run_raises(self):
        with self.assertRaisesRegex(Error, "max_model_len|tokens"):
            self.engine.chat("prime " * 6000)
        with self.assertRaisesRegex(Error, "top_p"):
            self.engine.chat("Hello", top_p=7.0)


class Structured(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = opened()
        cls.addClassCleanup(cls.engine.close)

    def test_schemas(self):
        for schema in (SCHEMA, json.dumps(SCHEMA)):
            answer = self.engine.chat(PRIMES, json_schema=schema, temperature=0, max_tokens=100)
            self.assertEqual(answer.finish_reason, "stop")
            self.assertEqual(answer.parsed, json.loads(answer.text))
            self.assertEqual(set(answer.parsed), {"name", "prime"})
        (one, two) = self.engine.generate(["a", "b"], each=[{"json_schema": {"const": 7}}, {"regex": "[a-c]{4}"}])
        self.assertEqual(one.parsed, 7)
        self.assertRegex(two.text, "^[a-c]{4}$")
        with self.assertRaisesRegex(ValueError, "no json_schema"):
            two.parsed
        (several,) = self.engine.generate("a", json_schema={"enum": [1, 2]}, n=3, temperature=1.0)
        self.assertLessEqual({one.parsed for one in several.completions}, {1, 2})
        (old,) = self.engine.generate("a", structure='{"const": 7}', structure_kind="json_schema")
        self.assertEqual(old.parsed, 7)

    def test_grammars(self):
        (said,) = self.engine.generate("a", grammar='start: "yes" | "no"')
        self.assertIn(said.text, ("yes", "no"))
        self.assertIn("".join(one.text for one in self.engine.stream("a", grammar='start: "yes" | "no"')), ("yes", "no"))
        request = self.engine.add_request("a", regex="x{3}")
        text = ""
        while not self.engine.is_finished():
            self.engine.step()
            while (output := self.engine.poll()) is not None:
                self.assertEqual(output.request_id, request)
                text += output.text
        self.assertEqual(text, "xxx")

    def test_json_that_is_cut_off_says_so(self):
        answer = self.engine.chat(PRIMES, json_schema=SCHEMA, max_tokens=2)
        self.assertEqual(answer.finish_reason, Finish.LENGTH)
        with self.assertRaisesRegex(ValueError, "ended by 'length' after 2 tokens: raise max_tokens"):
            answer.parsed

    def test_what_the_library_refuses(self):
        for options, text in [({"json_schema": {"type": "objekt"}}, "objekt"), ({"regex": "("}, "structure"), ({"grammar": "begin: x"}, "start")]:
            with self.assertRaisesRegex(Error, text):
                self.engine.chat("Hello", **options)

    @unittest.skipIf(pydantic is None, "needs pydantic")
    def test_classes_of_pydantic(self):
        class Kind(pydantic.BaseModel):
            model_config = pydantic.ConfigDict(extra="forbid")
            word: str = pydantic.Field(max_length=8)

        class Number(pydantic.BaseModel):
            model_config = pydantic.ConfigDict(extra="forbid")
            value: int = pydantic.Field(ge=0, le=99)
            kinds: list[Kind] = pydantic.Field(max_length=2)

        answer = self.engine.chat(PRIMES, json_schema=Number, temperature=0, max_tokens=200)
        self.assertIsInstance(answer.parsed, Number)
        self.assertEqual(answer.parsed.model_dump(), json.loads(answer.text))

        class Strict(Number):
            @pydantic.field_validator("value")
            @classmethod
            def refuse(cls, value):
                raise ValueError("no number is right")

        with self.assertRaisesRegex(ValueError, "no number is right"):
            self.engine.chat(PRIMES, json_schema=Strict, temperature=0, max_tokens=200).parsed

        async def run():
            async with AsyncEngine(MODEL, device="cpu", num_threads=1) as served:
                self.assertIsInstance((await served.chat(PRIMES, json_schema=Number, temperature=0, max_tokens=200)).parsed, Number)

        asyncio.run(run())


class Loop(unittest.IsolatedAsyncioTestCase):
    async def test_it_goes_on_while_a_request_is_made(self):
        """The template, the schema of a class and the structure are made on other threads: the loop turns before any of them has returned."""
        engine = AsyncEngine(opened())
        loop_thread, turned, done = threading.get_ident(), threading.Event(), []

        def off_the_loop(name, function):
            def call(*arguments, **options):
                self.assertNotEqual(threading.get_ident(), loop_thread, name)
                # Set by a task of the loop, that runs only if the loop is not blocked here.
                self.assertTrue(turned.wait(30), f"the loop does not turn during {name}")
                turned.clear()
                result = function(*arguments, **options)
                done.append(name)
                return result

            return call

        class Schema:
            @staticmethod
            def model_json_schema():
                return SCHEMA

        Schema.model_json_schema = staticmethod(off_the_loop("schema", Schema.model_json_schema))
        inner = engine.engine
        inner.apply_chat_template = off_the_loop("template", inner.apply_chat_template)
        inner.add_request = off_the_loop("request", inner.add_request)

        async def turn():
            while True:
                turned.set()
                await asyncio.sleep(0.001)

        turning = asyncio.create_task(turn())
        try:
            answer = await engine.chat(PRIMES, json_schema=Schema, temperature=0, max_tokens=100)
        finally:
            turning.cancel()
            await asyncio.get_running_loop().run_in_executor(None, engine.close)
        self.assertEqual(done, ["template", "schema", "request"])
        self.assertEqual(set(json.loads(answer.text)), {"name", "prime"})

    async def test_structures_use_threads_of_their_own(self):
        engine = AsyncEngine(opened())
        names = []
        add = engine.engine.add_request

        def note(prompt, **options):
            names.append(threading.current_thread().name)
            return add(prompt, **options)

        engine.engine.add_request = note
        async with engine:
            for options in ({}, {"regex": "[a-z]"}, {"grammar": 'start: "a"'}, {"json_schema": {"const": 1}}, {"structure": "[a-z]", "structure_kind": "regex"}):
                await engine.generate("Hello", max_tokens=4, **options)
        self.assertEqual([name.startswith("nanovllm-add-structure") for name in names], [False, True, True, True, True])


class Embeddings(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = opened()
        cls.addClassCleanup(cls.engine.close)
        cls.width = cls.engine.model_info()["hidden_size"]

    @unittest.skipIf(numpy is None, "needs numpy")
    def test_arrays(self):
        made = self.engine.embed(["Hello", "list all", "Hello", [5, 6]])
        self.assertEqual((made.shape, made.dtype), ((4, self.width), numpy.float32))
        numpy.testing.assert_allclose(numpy.linalg.norm(made, axis=1), 1.0, rtol=1e-6)
        numpy.testing.assert_array_equal(made[0], made[2])
        self.assertLess(made[0] @ made[1], 0.999)
        one = self.engine.embed("Hello")
        self.assertEqual(one.shape, (self.width,))
        numpy.testing.assert_array_equal(one, made[0])
        raw = self.engine.embed("Hello", normalize=False)
        (old,) = self.engine.generate("Hello", pooling="last")
        numpy.testing.assert_array_equal(raw, numpy.array(old.embedding, numpy.float32))
        numpy.testing.assert_allclose(raw / numpy.linalg.norm(raw), one, rtol=1e-6)
        self.assertFalse(numpy.allclose(self.engine.embed("Hello list", pooling="mean"), self.engine.embed("Hello list")))
        self.assertEqual(self.engine.embed([]).shape, (0, self.width))

    def test_lists_without_numpy(self):
        with mock.patch.dict(sys.modules, {"numpy": None}):
            made = self.engine.embed(["Hello", "list all"])
            one = self.engine.embed("Hello")
        self.assertEqual([type(made), type(made[0]), len(made), len(made[0])], [list, list, 2, self.width])
        self.assertEqual(one, made[0])
        self.assertAlmostEqual(math.hypot(*one), 1.0, places=6)

    def test_a_text_that_cannot_run(self):
        with self.assertRaisesRegex(Error, "texts\\[1\\]: .*5000 tokens"):
            self.engine.embed(["Hello", [5] * 5000])
        with self.assertRaisesRegex(ValueError, "pooling is 'sum', but must be one of none, last, mean"):
            self.engine.embed("Hello", pooling="sum")
        with self.assertRaisesRegex(ValueError, "pooling"):
            self.engine.embed("Hello", pooling="none")

    def test_an_async_engine(self):
        async def run():
            async with AsyncEngine(MODEL, device="cpu", num_threads=1) as engine:
                return [list(map(float, row)) for row in await engine.embed(["Hello", "list all"])], list(map(float, await engine.embed("Hello")))

        several, one = asyncio.run(run())
        self.assertEqual(several, [list(map(float, row)) for row in self.engine.embed(["Hello", "list all"])])
        self.assertEqual(one, several[0])


if __name__ == "__main__":
    unittest.main()
