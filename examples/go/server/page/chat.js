"use strict";

const element = (id) => document.getElementById(id);
let history = [];
let running = null; // the AbortController of the answer that is being written

function addTurn(role, text) {
  const turn = document.createElement("p");
  turn.className = `turn ${role}`;
  turn.textContent = text;
  element("turns").append(turn);
  turn.scrollIntoView({ block: "end" });
  return turn;
}

function headers() {
  const made = { "Content-Type": "application/json" };
  if (element("key").value) made.Authorization = `Bearer ${element("key").value}`;
  return made;
}

// The data of each server-sent event of a response.
async function* events(response) {
  let rest = "";
  for await (const part of response.body.pipeThrough(new TextDecoderStream())) {
    const blocks = (rest + part).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) if (block.startsWith("data: ")) yield block.slice(6);
  }
}

async function failureOf(response) {
  if (response.status === 401) element("key").hidden = false;
  const body = await response.json().catch(() => null);
  return body?.error?.message ?? `${response.status} ${response.statusText}`;
}

async function answer() {
  const mine = history; // "New chat" replaces it, also while this answer is being written
  running = new AbortController();
  element("send").hidden = true;
  element("stop").hidden = false;
  const turn = addTurn("assistant", "");
  let text = "";
  let first = 0;
  try {
    const response = await fetch("v1/chat/completions", {
      method: "POST",
      headers: headers(),
      signal: running.signal,
      body: JSON.stringify({ messages: mine, stream: true, stream_options: { include_usage: true } }),
    });
    if (!response.ok) throw new Error(await failureOf(response));
    for await (const data of events(response)) {
      if (data === "[DONE]") break;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      first ||= performance.now();
      text += chunk.choices[0]?.delta.content ?? "";
      turn.textContent = text;
      turn.scrollIntoView({ block: "end" });
      if (chunk.usage) {
        // The first token belongs to the prompt's time.
        const seconds = (performance.now() - first) / 1000;
        const speed = seconds > 0 ? Math.round((chunk.usage.completion_tokens - 1) / seconds) : 0;
        element("speed").textContent = `${chunk.usage.completion_tokens} tokens, ${speed} tokens/s`;
      }
    }
    mine.push({ role: "assistant", content: text });
  } catch (error) {
    if (mine !== history) return;
    if (error.name === "AbortError") {
      element("speed").textContent = "stopped";
      mine.push({ role: "assistant", content: text });
    } else {
      if (text === "") turn.remove();
      addTurn("error", error.message);
      mine.pop();
    }
  } finally {
    running = null;
    element("send").hidden = false;
    element("stop").hidden = true;
  }
}

element("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = element("text").value.trim();
  if (text === "" || running) return;
  element("text").value = "";
  addTurn("user", text);
  history.push({ role: "user", content: text });
  answer();
});
element("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    element("form").requestSubmit();
  }
});
element("stop").addEventListener("click", () => running?.abort());
element("reset").addEventListener("click", () => {
  running?.abort();
  history = [];
  element("turns").replaceChildren();
  element("speed").textContent = "";
});

fetch("v1/models", { headers: headers() })
  .then((response) => (response.ok ? response.json() : Promise.reject(failureOf(response))))
  .then((models) => { element("model").textContent = models.data[0].id; })
  .catch(() => {});
