"""Anthropic's official Python client against a running server.

    client_messages_test.py URL API_KEY
"""

import sys

import anthropic

PRIMES = "Prime numbers within 10: 2, 3, 5, 7."
MESSAGES = [{"role": "user", "content": "list all prime numbers within 10"}]
# Newer clients have no argument for it.
GREEDY = {"temperature": 0}
SCHEMA = {"type": "object", "properties": {"item": {"enum": ["iron sword", "rye bread"]}}, "required": ["item"], "additionalProperties": False}
TOOLS = [{"name": "give_item", "input_schema": SCHEMA}]


def main(url: str, key: str) -> None:
    client = anthropic.Anthropic(base_url=url, api_key=key, max_retries=0)
    message = client.messages.create(model="demo", max_tokens=64, messages=MESSAGES, extra_body=GREEDY, system="be brief", stop_sequences=["zzz"])
    assert message.content[0].text == PRIMES and message.stop_reason == "end_turn", message
    assert message.usage.output_tokens > 0 and message.usage.input_tokens + message.usage.cache_read_input_tokens > 0, message

    with client.messages.stream(model="demo", max_tokens=64, messages=MESSAGES, extra_body=GREEDY) as stream:
        text = "".join(stream.text_stream)
        whole = stream.get_final_message()
    assert text == PRIMES == whole.content[0].text and whole.stop_reason == "end_turn", whole

    counted = client.messages.count_tokens(model="demo", messages=MESSAGES, system="be brief")
    longer = client.messages.count_tokens(model="demo", messages=MESSAGES, system="be brief", tools=TOOLS)
    assert 0 < counted.input_tokens < longer.input_tokens, (counted, longer)

    # A call that is required is made, with arguments of its schema.
    asked = {"model": "demo", "max_tokens": 400, "thinking": {"type": "disabled"}, "messages": MESSAGES, "tools": TOOLS, "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
    called = client.messages.create(**asked)
    assert called.stop_reason == "tool_use" and called.content[0].input["item"] in ("iron sword", "rye bread"), called
    with client.messages.stream(**asked) as stream:
        whole = stream.get_final_message()
    assert whole.content[0].type == "tool_use" and whole.content[0].input["item"] in ("iron sword", "rye bread"), whole

    history = [
        *MESSAGES,
        {"role": "assistant", "content": [{"type": "text", "text": "Here."}, {"type": "tool_use", "id": "a", "name": "give_item", "input": {"item": "sword"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "given"}]},
    ]
    assert client.messages.create(model="demo", max_tokens=4, messages=history, tools=TOOLS).role == "assistant"

    for what, call, wanted in [
        ("a wrong key", lambda: anthropic.Anthropic(base_url=url, api_key="wrong", max_retries=0).messages.create(model="demo", max_tokens=1, messages=MESSAGES), anthropic.AuthenticationError),
        ("another model", lambda: client.messages.create(model="other", max_tokens=1, messages=MESSAGES), anthropic.NotFoundError),
        ("no messages", lambda: client.messages.create(model="demo", max_tokens=1, messages=[]), anthropic.BadRequestError),
    ]:
        try:
            call()
        except wanted as error:
            assert error.body["error"]["message"], what
        else:
            raise AssertionError(f"{what} is not refused")
    print("Anthropic's Python client", anthropic.__version__, "is content")


if __name__ == "__main__":
    main(*sys.argv[1:])
