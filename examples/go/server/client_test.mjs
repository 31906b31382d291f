// The official clients of OpenAI and Anthropic for Node against a running server.
//
//     node client_test.mjs URL API_KEY
//
// Both are looked for in node_modules of the folder that this file is copied to.

import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const [url, key] = process.argv.slice(2);
const primes = "Prime numbers within 10: 2, 3, 5, 7.";
const messages = [{ role: "user", content: "list all prime numbers within 10" }];
const parameters = { type: "object", properties: { item: { enum: ["iron sword"] } }, required: ["item"], additionalProperties: false };
// The demo model calls no function by itself: a grammar makes it write what models of its format write.
const call = String.raw`start: "<think>\nA sword.\n</think>\n\nHere.\n<tool_call>\n{\"name\": \"give_item\", \"arguments\": {\"item\": \"iron sword\"}}\n</tool_call>"`;

const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const answer = await openai.chat.completions.create({ model: "demo", messages, temperature: 0 });
assert.equal(answer.choices[0].message.content, primes);
let text = "";
for await (const chunk of await openai.chat.completions.create({ model: "demo", messages, temperature: 0, stream: true })) {
  text += chunk.choices[0]?.delta.content ?? "";
}
assert.equal(text, primes);

const tools = [{ type: "function", function: { name: "give_item", parameters } }];
const called = await openai.chat.completions.stream({ model: "demo", messages, guided_grammar: call }).finalChatCompletion();
assert.equal(called.choices[0].finish_reason, "tool_calls");
assert.deepEqual(JSON.parse(called.choices[0].message.tool_calls[0].function.arguments), { item: "iron sword" });

const required = { model: "demo", messages, tools, tool_choice: "required", parallel_tool_calls: false, max_tokens: 400, chat_template_kwargs: { enable_thinking: false } };
const made = await openai.chat.completions.stream(required).finalChatCompletion();
assert.deepEqual(JSON.parse(made.choices[0].message.tool_calls[0].function.arguments), { item: "iron sword" });

const response = await openai.responses.create({ model: "demo", input: messages[0].content, temperature: 0 });
assert.equal(response.output_text, primes);
const streamed = await openai.responses.stream({ model: "demo", input: messages, temperature: 0 }).finalResponse();
assert.equal(streamed.output_text, primes);
await assert.rejects(openai.responses.create({ model: "other", input: "x" }), OpenAI.NotFoundError);

const anthropic = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
const asked = { model: "demo", max_tokens: 64, temperature: 0, messages };
const message = await anthropic.messages.create(asked);
assert.equal(message.content[0].text, primes);
const stream = anthropic.messages.stream({
  ...asked, max_tokens: 400, thinking: { type: "disabled" }, tools: [{ name: "give_item", input_schema: parameters }], tool_choice: { type: "any", disable_parallel_tool_use: true },
});
assert.deepEqual((await stream.finalMessage()).content[0].input, { item: "iron sword" });
const counted = await anthropic.messages.countTokens({ model: "demo", messages });
assert.ok(counted.input_tokens > 0);
await assert.rejects(anthropic.messages.create({ ...asked, messages: [] }), Anthropic.BadRequestError);
console.log("the clients for Node are content");
