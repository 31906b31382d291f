"""The official Python client against a running server.

    client_test.py URL API_KEY
"""

import json
import sys

import openai

PRIMES = "Prime numbers within 10: 2, 3, 5, 7."
MESSAGES = [{"role": "user", "content": "list all prime numbers within 10"}]


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "give_item",
            "description": "gives an item to the customer",
            "parameters": {
                "type": "object",
                "properties": {"item": {"enum": ["iron sword", "rye bread"]}},
                "required": ["item"],
                "additionalProperties": False,
            },
        },
    }
]
NO_REASONING = {"chat_template_kwargs": {"enable_thinking": False}}
# The demo model calls no function by itself: a grammar makes it write what models of its format write.
CALL = """start: "<think>\\nA sword.\\n</think>\\n\\nHere.\\n<tool_call>\\n{\\"name\\": \\"give_item\\", \\"arguments\\": {\\"item\\": \\"iron sword\\"}}\\n</tool_call>" """


def calls(client: openai.OpenAI, model: str) -> None:
    asked = {"model": model, "messages": MESSAGES, "extra_body": {"guided_grammar": CALL}}
    message = client.chat.completions.create(**asked).choices[0].message
    assert message.tool_calls[0].function.name == "give_item", message
    assert json.loads(message.tool_calls[0].function.arguments) == {"item": "iron sword"}, message
    assert message.reasoning_content.strip() == "A sword." and message.content.strip() == "Here.", message

    # The client's own accumulator of streams.
    with client.chat.completions.stream(**asked) as stream:
        for _ in stream:
            pass
        whole = stream.get_final_completion().choices[0]
    assert whole.finish_reason == "tool_calls", whole
    assert json.loads(whole.message.tool_calls[0].function.arguments) == {"item": "iron sword"}, whole

    # A call that is required is made, with arguments of its schema.
    required = client.chat.completions.create(
        model=model, messages=MESSAGES, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, max_tokens=400, extra_body=NO_REASONING
    ).choices[0]
    assert required.finish_reason == "tool_calls" and len(required.message.tool_calls) == 1, required
    assert json.loads(required.message.tool_calls[0].function.arguments)["item"] in ("iron sword", "rye bread"), required

    # The message goes back as the client has it.
    history = [*MESSAGES, message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "given"}]
    assert client.chat.completions.create(model=model, messages=history, tools=TOOLS, max_tokens=4).choices[0].message


def responses(client: openai.OpenAI, model: str) -> None:
    answer = client.responses.create(model=model, input=MESSAGES, temperature=0)
    assert answer.output_text == PRIMES and answer.status == "completed", answer
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens, answer
    with client.responses.stream(model=model, input=MESSAGES[0]["content"], temperature=0) as stream:
        kinds = [event.type for event in stream]
        whole = stream.get_final_response()
    assert whole.output_text == PRIMES and kinds[0] == "response.created" and kinds[-1] == "response.completed", (whole, kinds)
    called = client.responses.create(
        model=model, input="a sword", tools=[{"type": "function", **TOOLS[0]["function"]}], tool_choice="required", parallel_tool_calls=False, max_output_tokens=400, reasoning={"effort": "none"}
    ).output[0]
    assert called.type == "function_call" and json.loads(called.arguments)["item"], called
    # What an answer says goes back as input.
    history = [{"role": "user", "content": "hello"}, *answer.output, {"role": "user", "content": "list all prime numbers within 10"}]
    assert client.responses.create(model=model, input=history, instructions="be brief", max_output_tokens=4).status in ("incomplete", "completed")
    try:
        client.responses.create(model=model, input="x", previous_response_id=answer.id)
    except openai.BadRequestError as error:
        assert "previous_response_id" in error.body["message"], error
    else:
        raise AssertionError("an answer that is not kept is found")


def main(url: str, key: str) -> None:
    client = openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0)
    model = client.models.list().data[0].id

    answer = client.chat.completions.create(model=model, messages=MESSAGES, temperature=0)
    assert answer.choices[0].message.content == PRIMES, answer
    assert answer.choices[0].finish_reason == "stop", answer
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens, answer

    text, last = "", None
    for chunk in client.chat.completions.create(
        model=model, messages=MESSAGES, temperature=0, stream=True, stream_options={"include_usage": True}
    ):
        last = chunk
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
    assert text == PRIMES, text
    assert last.usage.completion_tokens == answer.usage.completion_tokens, last

    parts = [{"role": "user", "content": [{"type": "text", "text": MESSAGES[0]["content"]}]}]
    assert client.chat.completions.create(model=model, messages=parts, temperature=0).choices[0].message.content == PRIMES

    completion = client.completions.create(model=model, prompt="one", max_tokens=3, seed=1)
    assert completion.usage.completion_tokens <= 3, completion
    tokens = client.completions.create(model=model, prompt=[5, 6, 7], max_tokens=3)
    assert tokens.usage.prompt_tokens == 3, tokens

    asked = client.chat.completions.create(model=model, messages=MESSAGES, temperature=0, logprobs=True, top_logprobs=3)
    tokens = asked.choices[0].logprobs.content
    assert "".join(token.token for token in tokens).startswith(PRIMES), tokens
    for token in tokens:
        assert token.top_logprobs[0].token == token.token and token.logprob <= 0 and len(token.top_logprobs) == 3, token
    older = client.completions.create(model=model, prompt="list all", max_tokens=4, logprobs=2, temperature=0).choices[0].logprobs
    assert len(older.tokens) == len(older.token_logprobs) == len(older.top_logprobs) == len(older.text_offset) > 0, older

    # Token 258 is "is", which comes where it is wished for, and not again where it is not.
    wished = client.completions.create(model=model, prompt="list all", max_tokens=2, temperature=0, logit_bias={"258": 100})
    assert wished.choices[0].text == "isis", wished
    once = client.completions.create(
        model=model, prompt="list all", max_tokens=2, temperature=0, logit_bias={"258": 100}, frequency_penalty=1000
    )
    assert once.choices[0].text.startswith("is") and once.choices[0].text != "isis", once

    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 8}, "coins": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["name", "coins"],
        "additionalProperties": False,
    }
    formatted = client.chat.completions.create(
        model=model, messages=MESSAGES, response_format={"type": "json_schema", "json_schema": {"name": "ware", "schema": schema}}
    )
    ware = json.loads(formatted.choices[0].message.content)
    assert set(ware) == {"name", "coins"} and len(ware["name"]) <= 8 and 0 <= ware["coins"] <= 99, ware

    # The client asks for base64 of its own accord, and decodes it.
    embedding = client.embeddings.create(model=model, input=["an iron sword", "a loaf of bread"])
    numbers = client.embeddings.create(model=model, input="an iron sword", encoding_format="float")
    assert len(embedding.data) == 2 and embedding.usage.prompt_tokens > 2, embedding
    assert max(abs(a - b) for a, b in zip(embedding.data[0].embedding, numbers.data[0].embedding)) < 1e-6

    calls(client, model)
    responses(client, model)

    for what, call, wanted in [
        ("a wrong key", lambda: client.with_options(api_key="wrong").models.list(), openai.AuthenticationError),
        ("another model", lambda: client.chat.completions.create(model="other", messages=MESSAGES), openai.NotFoundError),
        (
            "a format without a schema",
            lambda: client.chat.completions.create(model=model, messages=MESSAGES, response_format={"type": "json_schema"}),
            openai.BadRequestError,
        ),
        ("no messages", lambda: client.chat.completions.create(model=model, messages=[]), openai.BadRequestError),
    ]:
        try:
            call()
        except wanted as error:
            assert error.body["message"], what
        else:
            raise AssertionError(f"{what} is not refused")
    print("the Python client", openai.__version__, "is content")


if __name__ == "__main__":
    main(*sys.argv[1:])
