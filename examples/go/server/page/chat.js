"use strict";

const element = (id) => document.getElementById(id);
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];
const KEPT = [...NUMBERS, "system", "tools", "models"];

// The conversation, as the API has it. It survives a reload of the page, as the settings do; a key lives as long as the tab.
let history = stored(localStorage, "history", []);
let running = null; // the AbortController of the answer that is being written

function stored(storage, name, otherwise) {
  try {
    return JSON.parse(storage.getItem(`nanovllm.${name}`)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function store(storage, name, value) {
  try {
    storage.setItem(`nanovllm.${name}`, JSON.stringify(value));
  } catch {
    // No room, or not allowed: the conversation goes on, and does not survive a reload.
  }
}

function keep() {
  store(localStorage, "history", history);
  store(localStorage, "settings", Object.fromEntries(KEPT.map((id) => [id, element(id).value])));
  store(sessionStorage, "key", element("key").value);
}

// One turn of the conversation on the page. update shows what the message has become.
function addTurn(message) {
  const turn = made("article");
  turn.className = `turn ${message.role}`;
  const text = made("div");
  text.className = "text";
  turn.append(text);
  element("turns").append(turn);
  let isOpenedByUser = null;
  const update = (isWriting) => {
    turn.querySelectorAll(".reasoning, .call").forEach((old) => old.remove());
    if (message.reasoning_content) {
      const reasoning = made("details", made("summary", isWriting && !message.content ? "Reasoning …" : "Reasoning"));
      reasoning.className = "reasoning";
      const inside = made("div");
      showMarkdown(message.reasoning_content, inside);
      reasoning.append(inside);
      reasoning.open = isOpenedByUser ?? (isWriting && !message.content);
      reasoning.firstChild.addEventListener("click", () => { isOpenedByUser = !reasoning.open; });
      text.before(reasoning);
    }
    if (message.role === "assistant") showMarkdown(message.content ?? "", text);
    else text.textContent = message.content;
    for (const call of message.tool_calls ?? []) {
      const shown = made("details", made("summary", `Call of ${call.function.name}`), made("pre", pretty(call.function.arguments)));
      shown.className = "call";
      shown.open = true;
      text.after(shown);
    }
  };
  update(false);
  turn.scrollIntoView({ block: "end" });
  return { turn, update };
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// Adds what one can do with a turn.
function addActions(turn, message, isLast) {
  document.querySelectorAll(".again").forEach((old) => old.remove());
  const bar = made("div");
  bar.className = "actions";
  const button = (name, title, action) => {
    const node = made("button", title);
    node.type = "button";
    node.className = name;
    node.addEventListener("click", () => action(node));
    bar.append(node);
  };
  button("copy", "Copy", (node) => copyText(message.content ?? "", node));
  if (isLast) button("again", "Regenerate", regenerate);
  turn.append(bar);
}

function showAll() {
  element("turns").replaceChildren();
  history.forEach((message, i) => {
    const { turn } = addTurn(message);
    if (message.role === "assistant") addActions(turn, message, i === history.length - 1);
  });
}

function headers() {
  const sent = { "Content-Type": "application/json" };
  if (element("key").value) sent.Authorization = `Bearer ${element("key").value}`;
  return sent;
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
  if (response.status === 401) {
    showSettings(true);
    element("key").focus();
  }
  const body = await response.json().catch(() => null);
  return body?.error?.message ?? `${response.status} ${response.statusText}`;
}

function requestOf(messages) {
  const request = { messages, stream: true, stream_options: { include_usage: true } };
  if (element("system").value.trim()) request.messages = [{ role: "system", content: element("system").value }, ...messages];
  if (element("models").value) request.model = element("models").value;
  for (const name of NUMBERS) if (element(name).value !== "") request[name] = Number(element(name).value);
  if (element("tools").value.trim()) request.tools = JSON.parse(element("tools").value);
  return request;
}

// Adds what a chunk of a stream says to a message.
function add(message, delta) {
  if (delta.reasoning_content) message.reasoning_content = (message.reasoning_content ?? "") + delta.reasoning_content;
  if (delta.content) message.content += delta.content;
  for (const call of delta.tool_calls ?? []) {
    message.tool_calls ??= [];
    const known = (message.tool_calls[call.index] ??= { id: call.id, type: "function", function: { name: "", arguments: "" } });
    known.function.name += call.function.name ?? "";
    known.function.arguments += call.function.arguments ?? "";
  }
}

async function answer() {
  const mine = history; // "New chat" replaces it, also while this answer is being written
  running = new AbortController();
  element("send").hidden = true;
  element("stop").hidden = false;
  const message = { role: "assistant", content: "" };
  const { turn, update } = addTurn(message);
  const isEmpty = () => message.content === "" && !message.reasoning_content && !message.tool_calls;
  let first = 0;
  let frame = 0;
  const show = () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      const main = element("turns");
      const isAtEnd = main.scrollHeight - main.scrollTop - main.clientHeight < 80;
      update(true);
      if (isAtEnd) main.scrollTop = main.scrollHeight;
    });
  };
  const done = () => {
    cancelAnimationFrame(frame);
    update(false);
    mine.push(message);
    if (mine === history) {
      keep();
      addActions(turn, message, true);
      turn.scrollIntoView({ block: "end" });
    }
  };
  try {
    const response = await fetch("v1/chat/completions", {
      method: "POST",
      headers: headers(),
      signal: running.signal,
      body: JSON.stringify(requestOf(mine)),
    });
    if (!response.ok) throw new Error(await failureOf(response));
    for await (const data of events(response)) {
      if (data === "[DONE]") break;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      first ||= performance.now();
      add(message, chunk.choices[0]?.delta ?? {});
      show();
      if (chunk.usage) {
        // The first token belongs to the prompt's time.
        const seconds = (performance.now() - first) / 1000;
        const speed = seconds > 0 ? Math.round((chunk.usage.completion_tokens - 1) / seconds) : 0;
        element("speed").textContent = `${chunk.usage.completion_tokens} tokens, ${speed} tokens/s`;
      }
    }
    done();
  } catch (error) {
    cancelAnimationFrame(frame);
    if (mine !== history) return;
    if (error.name === "AbortError") {
      element("speed").textContent = "stopped";
      done();
    } else {
      if (isEmpty()) turn.remove();
      else update(false);
      const failed = addTurn({ role: "error", content: error.message });
      addActions(failed.turn, { content: error.message }, true);
    }
  } finally {
    running = null;
    element("send").hidden = false;
    element("stop").hidden = true;
  }
}

// Answers the last question again.
function regenerate() {
  if (running) return;
  while (history.at(-1)?.role === "assistant") history.pop();
  if (history.length === 0) return;
  showAll();
  answer();
}

function showSettings(isShown) {
  element("settings").hidden = !isShown;
  element("toggle").setAttribute("aria-expanded", String(isShown));
}

element("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = element("text").value.trim();
  if (text === "" || running) return;
  element("text").value = "";
  document.querySelectorAll(".turn.error").forEach((old) => old.remove());
  // A question that was not answered is replaced by the next one.
  while (history.at(-1)?.role === "user") history.pop();
  history.push({ role: "user", content: text });
  showAll();
  keep();
  answer();
});
element("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    element("form").requestSubmit();
  }
});
element("stop").addEventListener("click", () => running?.abort());
element("toggle").addEventListener("click", () => showSettings(element("settings").hidden));
element("settings").addEventListener("change", keep);
element("models").addEventListener("change", keep);
element("key").addEventListener("change", loadModels);
element("reset").addEventListener("click", () => {
  running?.abort();
  history = [];
  element("turns").replaceChildren();
  element("speed").textContent = "";
  keep();
});

// Shows the name of the model, or a choice if there are several.
function loadModels() {
  fetch("v1/models", { headers: headers() })
    .then((response) => (response.ok ? response.json() : failureOf(response).then((text) => Promise.reject(text))))
    .then((models) => {
      element("model").textContent = models.data[0].id;
      const isChoice = models.data.length > 1;
      const chosen = element("models").value || stored(localStorage, "settings", {}).models;
      element("models").replaceChildren(...(isChoice ? models.data.map(({ id }) => new Option(id, id)) : []));
      if (models.data.some(({ id }) => id === chosen)) element("models").value = chosen;
      element("models").hidden = !isChoice;
      element("model").hidden = isChoice;
    })
    .catch(() => {});
}

for (const [id, value] of Object.entries(stored(localStorage, "settings", {}))) if (KEPT.includes(id)) element(id).value = value;
element("key").value = stored(sessionStorage, "key", "");
showAll();
loadModels();
