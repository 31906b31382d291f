"use strict";

// Markdown as models write it, as nodes of the page. Text only ever becomes text nodes and addresses that are checked, so that nothing a
// model says can become a script, load anything, or break out of its element.

// One pattern per kind of inline markup; the first match in the text counts. A code span comes first, because it holds no other markup.
const INLINE = [
  [/(`+)([^]*?[^`])\1(?!`)/, (found) => [made("code", found[2].trim())]],
  [/\[([^\][]*)\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)/, (found) => [link(found[2], found[1])]],
  [/https?:\/\/[^\s<>"'`]*[^\s<>"'`.,;:!?)\]}*_]/, (found) => [link(found[0], found[0])]],
  [/\*\*(?=\S)([^]*?\S)\*\*/, (found) => [made("strong", ...inline(found[1]))]],
  [/(?<![\w])__(?=\S)([^]*?\S)__(?!\w)/, (found) => [made("strong", ...inline(found[1]))]],
  [/~~(?=\S)([^]*?\S)~~/, (found) => [made("del", ...inline(found[1]))]],
  [/\*(?=[^\s*])([^]*?[^\s*])\*(?!\*)/, (found) => [made("em", ...inline(found[1]))]],
  [/(?<![\w])_(?=[^\s_])([^]*?[^\s_])_(?!\w)/, (found) => [made("em", ...inline(found[1]))]],
];

function made(name, ...children) {
  const node = document.createElement(name);
  node.append(...children);
  return node;
}

// A link leads only to pages and addresses of mail; anything else is text.
function link(address, text) {
  if (!/^(https?:\/\/|mailto:)/i.test(address)) return document.createTextNode(text);
  const node = made("a", text);
  node.href = address;
  node.target = "_blank";
  node.rel = "noopener noreferrer";
  return node;
}

// The longest text in which markup is looked for, and the deepest nesting: patterns look for ends, which takes time.
const MOST_INLINE = 4000;
const MOST_DEPTH = 12;
let depth = 0;

function inline(text) {
  if (text.length > MOST_INLINE || depth > MOST_DEPTH) return [text];
  depth++;
  const nodes = [];
  // A pattern that is not in a text is not in the rest of it either.
  let patterns = INLINE;
  while (text !== "") {
    let first = null;
    patterns = patterns.filter(([pattern, make]) => {
      const found = pattern.exec(text);
      if (found && (!first || found.index < first.found.index)) first = { found, make };
      return found;
    });
    if (!first) break;
    if (first.found.index > 0) nodes.push(text.slice(0, first.found.index));
    nodes.push(...first.make(first.found));
    text = text.slice(first.found.index + first.found[0].length);
  }
  if (text !== "") nodes.push(text);
  depth--;
  return nodes;
}

const FENCE = /^ {0,3}(```+|~~~+)\s*([^`\s]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^ {0,3}([-*_])\s*(?:\1\s*){2,}$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const DIVIDER = /^ *\|? *:?-+:? *(\| *:?-+:? *)*\|? *$/;

// The nodes of lines of Markdown.
function blocks(lines) {
  const nodes = [];
  if (depth > MOST_DEPTH) return [made("p", lines.join("\n"))];
  depth++;
  for (let at = 0; at < lines.length; ) {
    const line = lines[at];
    let found;
    if (line.trim() === "") {
      at++;
    } else if ((found = FENCE.exec(line))) {
      const begin = ++at;
      while (at < lines.length && !lines[at].trimStart().startsWith(found[1])) at++;
      nodes.push(codeBlock(lines.slice(begin, at).join("\n"), found[2]));
      at++;
    } else if ((found = HEADING.exec(line))) {
      nodes.push(made(`h${Math.min(6, found[1].length + 1)}`, ...inline(found[2])));
      at++;
    } else if (RULE.test(line)) {
      nodes.push(made("hr"));
      at++;
    } else if (QUOTE.test(line)) {
      const inside = [];
      while (at < lines.length && (found = QUOTE.exec(lines[at]))) {
        inside.push(found[1]);
        at++;
      }
      nodes.push(made("blockquote", ...blocks(inside)));
    } else if (ITEM.test(line)) {
      const end = endOfList(lines, at);
      nodes.push(list(lines.slice(at, end)));
      at = end;
    } else if (line.includes("|") && at + 1 < lines.length && lines[at + 1].includes("-") && DIVIDER.test(lines[at + 1])) {
      const begin = at;
      for (at += 2; at < lines.length && lines[at].includes("|"); ) at++;
      nodes.push(table(lines[begin], lines.slice(begin + 2, at)));
    } else {
      const begin = at;
      for (at++; at < lines.length && lines[at].trim() !== "" && ![FENCE, HEADING, RULE, QUOTE, ITEM].some((kind) => kind.test(lines[at])); ) at++;
      nodes.push(paragraph(lines.slice(begin, at)));
    }
  }
  depth--;
  return nodes;
}

function paragraph(lines) {
  const node = made("p");
  // In a chat, a new line is one.
  lines.forEach((line, i) => {
    if (i > 0) node.append(document.createElement("br"));
    node.append(...inline(line.trim()));
  });
  return node;
}

function codeBlock(text, language) {
  const copy = made("button", "Copy");
  copy.type = "button";
  copy.className = "copy";
  copy.addEventListener("click", () => copyText(text, copy));
  const bar = made("div", made("span", language), copy);
  bar.className = "bar";
  const node = made("div", bar, made("pre", made("code", text)));
  node.className = "code";
  return node;
}

// A list ends before a line that is neither indented nor an item, and before a blank line that no item or indented line follows.
function endOfList(lines, begin) {
  let at = begin + 1;
  for (; at < lines.length; at++) {
    const next = lines[at].trim() === "" ? lines[at + 1] ?? "" : lines[at];
    if (!/^ {2,}\S/.test(next) && !ITEM.test(next)) break;
  }
  return at;
}

function list(lines) {
  const first = ITEM.exec(lines[0]);
  const isNumbered = /\d/.test(first[2]);
  const node = document.createElement(isNumbered ? "ol" : "ul");
  if (isNumbered && parseInt(first[2], 10) !== 1) node.start = parseInt(first[2], 10);
  let inside = null;
  const close = () => {
    if (!inside) return;
    const nodes = blocks(inside);
    // An item of one paragraph is written without the space around it.
    const isTight = nodes[0]?.tagName === "P" && nodes.slice(1).every((one) => ["UL", "OL"].includes(one.tagName));
    node.append(isTight ? made("li", ...nodes[0].childNodes, ...nodes.slice(1)) : made("li", ...nodes));
  };
  for (const line of lines) {
    const found = ITEM.exec(line);
    if (found && found[1].length <= first[1].length + 1) {
      close();
      inside = [found[3]];
    } else {
      inside.push(line.replace(new RegExp(`^ {0,${first[1].length + first[2].length + 1}}`), ""));
    }
  }
  close();
  return node;
}

function table(head, rows) {
  const cells = (row, name) => made("tr", ...row.trim().replace(/^\||\|$/g, "").split("|").map((cell) => made(name, ...inline(cell.trim()))));
  const node = made("div", made("table", made("thead", cells(head, "th")), made("tbody", ...rows.map((row) => cells(row, "td")))));
  node.className = "table";
  return node;
}

function copyText(text, button) {
  navigator.clipboard.writeText(text).then(
    () => { button.textContent = "Copied"; },
    () => { button.textContent = "Not allowed"; },
  );
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

// Shows Markdown in an element.
function showMarkdown(text, element) {
  depth = 0;
  element.replaceChildren(...blocks(text.replace(/\r\n?/g, "\n").replaceAll("\t", "    ").split("\n")));
}
