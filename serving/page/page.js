// Asks the server that this page comes from. The query stands in the address behind #, so that it can be shared.

const $ = (id) => document.getElementById(id);
const PLURAL = { head: "heads", tail: "tails" };
let token = "";
let asked = 0; // counts queries, so that a late answer does not replace a newer one
let last = null; // the answers that are shown

class Failure extends Error {}

// ---- the server

async function call(path, body, signal) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  if (body) headers["Content-Type"] = "application/json";
  let reply, text;
  try {
    reply = await fetch(path, { method: body ? "POST" : "GET", body: body && JSON.stringify(body), headers, signal });
    text = await reply.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("The server does not answer.");
  }
  if (reply.status === 401) {
    $("token-form").hidden = false;
    throw new Failure(token ? "The server does not take this token." : "The server asks for a token.");
  }
  let answer = {};
  try {
    answer = JSON.parse(text);
  } catch {
    throw new Failure(`The server answered ${reply.status} with something that is no JSON.`);
  }
  if (!reply.ok) throw new Failure(sentence(answer.error || `The server answered ${reply.status}.`));
  return answer;
}

const model = () => `v1/models/${encodeURIComponent($("model").value)}`;

function sentence(text) {
  // TensorFlow's words about an assertion in the model: "assertion failed: [unknown entity:] [Frence]"
  const clean = String(text).trim().replace(/^assertion failed: \[(.*?):?\] \[(.*)\]$/s, "$1: $2");
  return clean.charAt(0).toUpperCase() + clean.slice(1) + (/[.!?]$/.test(clean) ? "" : ".");
}

function say(text, error = false) {
  $("message").textContent = text;
  $("message").classList.toggle("error", error);
}

function tell(error) {
  if (error.name === "AbortError") return;
  say(error instanceof Failure ? error.message : `Something in this page failed: ${error.message}`, true);
}

// ---- completion: an input with a list of names below it

class Completion {
  constructor(input, kind) {
    this.input = input;
    this.kind = kind;
    this.list = $(`${input.id}-names`);
    this.active = -1;
    this.timer = 0;
    this.request = null;
    input.addEventListener("input", () => this.later());
    input.addEventListener("focus", () => input.value || this.later());
    input.addEventListener("blur", () => this.close());
    input.addEventListener("keydown", (event) => this.key(event));
    // mousedown and not click, which would come after the input has lost the focus
    this.list.addEventListener("mousedown", (event) => {
      event.preventDefault();
      const option = event.target.closest("li");
      if (option) this.choose(option.textContent);
    });
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look().catch(tell), 60);
  }

  async look() {
    this.request?.abort();
    this.request = new AbortController();
    const query = new URLSearchParams({ kind: this.kind, prefix: this.input.value, limit: 20 });
    const { names } = await call(`${model()}/names?${query}`, null, this.request.signal);
    if (document.activeElement !== this.input) return;
    this.list.replaceChildren(...names.map((name, i) => this.option(name, i)));
    this.show(names.length > 0);
  }

  option(name, i) {
    const option = document.createElement("li");
    option.role = "option";
    option.id = `${this.list.id}-${i}`;
    option.ariaSelected = "false";
    option.textContent = name;
    return option;
  }

  show(open) {
    this.list.hidden = !open;
    this.input.setAttribute("aria-expanded", String(open));
    this.mark(-1);
  }

  close() {
    clearTimeout(this.timer);
    this.request?.abort();
    this.show(false);
  }

  mark(i) {
    const options = this.list.children;
    options[this.active]?.setAttribute("aria-selected", "false");
    this.active = i;
    const option = options[i];
    option?.setAttribute("aria-selected", "true");
    option?.scrollIntoView({ block: "nearest" });
    if (option) this.input.setAttribute("aria-activedescendant", option.id);
    else this.input.removeAttribute("aria-activedescendant");
  }

  choose(name) {
    this.input.value = name;
    this.close();
    const { entity, relation } = query();
    if (entity && relation) $("query").requestSubmit();
    else (entity ? $("relation") : known()).focus();
  }

  key(event) {
    const count = this.list.hidden ? 0 : this.list.children.length;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!count) this.later();
      else if (event.key === "ArrowDown") this.mark((this.active + 1) % count);
      else this.mark(this.active <= 0 ? count - 1 : this.active - 1);
    } else if (event.key === "Enter" && count && this.active >= 0) {
      event.preventDefault();
      this.choose(this.list.children[this.active].textContent);
    } else if (event.key === "Escape" && count) {
      event.preventDefault();
      this.close();
    }
  }
}

// ---- the query

const sought = () => document.querySelector("input[name=find]:checked").value;
const known = () => $(sought() === "tail" ? "head" : "tail");
const query = () => ({ find: sought(), entity: known().value.trim(), relation: $("relation").value.trim() });

function address({ find, entity, relation }) {
  const parts = { model: $("model").value, find, entity, relation };
  return `#${new URLSearchParams(Object.entries(parts).filter(([, value]) => value))}`;
}

function turn(find) {
  $(`find-${find}`).checked = true;
  $("triple").dataset.find = find;
}

async function ask() {
  const number = ++asked;
  const { find, entity, relation } = query();
  if (!entity || !relation) {
    const missing = entity ? $("relation") : known();
    missing.focus();
    say(`Choose ${missing === $("relation") ? "a relation" : `a ${missing.id}`} to begin.`);
    return;
  }
  const inputs = find === "tail" ? { head: [entity], relation: [relation] } : { relation: [relation], tail: [entity] };
  let answer;
  try {
    answer = await call(`${model()}:predict`, { signature_name: `predict_${PLURAL[find]}`, inputs });
  } catch (error) {
    if (number === asked) {
      $("answers").hidden = true;
      last = null;
      tell(error);
    }
    return;
  }
  if (number !== asked) return;
  const { outputs } = answer;
  const rows = outputs[find][0].map((name, i) => ({
    name,
    rank: i + 1,
    score: outputs.score[0][i],
    probability: outputs.probability[0][i],
    seen: outputs.seen[0][i],
  }));
  last = { find, entity, relation, rows: rows.filter((row) => row.name) };
  show();
}

// ---- the answers

function show() {
  if (!last) return;
  const { find, entity, relation } = last;
  const rows = last.rows.filter((row) => !(row.seen && $("new-only").checked));
  const triple = find === "tail" ? `${entity} → ${relation} → ?` : `? → ${relation} → ${entity}`;
  $("answers").hidden = rows.length === 0;
  $("asked").textContent = triple;
  $("sought").textContent = find === "tail" ? "Tail" : "Head";
  document.querySelector("#answers tbody").replaceChildren(...rows.map(row));
  const hidden = last.rows.length - rows.length;
  const count = `${rows.length} ${rows.length === 1 ? find : PLURAL[find]}`;
  say(`${count}, best first${hidden ? `; ${hidden} that ${hidden === 1 ? "is a known fact" : "are known facts"} left out` : ""}.`);
  document.title = `${triple} · ${$("model").value}`;
}

function row({ name, rank, score, probability, seen }) {
  const line = document.createElement("tr");
  const link = document.createElement("a");
  link.href = address({ find: "tail", entity: name });
  link.textContent = name;
  link.title = `Ask about ${name}`;
  const likely = element("div", "likely");
  const track = element("div", "track");
  const bar = element("div", "bar");
  bar.style.width = `${100 * probability}%`;
  track.append(bar);
  likely.append(track, element("span", "number", percent(probability)));
  line.append(
    element("td", "number", String(rank)),
    element("td", "name", link),
    element("td", "", likely),
    element("td", "number", score.toFixed(3)),
    element("td", "", seen ? element("span", "known", "✓", element("span", "", " known fact")) : ""),
  );
  return line;
}

function element(tag, className, ...content) {
  const made = document.createElement(tag);
  made.className = className;
  made.append(...content);
  return made;
}

function percent(probability) {
  if (probability > 0 && probability < 0.001) return "< 0.1 %";
  if (probability < 1 && probability > 0.999) return "> 99.9 %";
  return `${(100 * probability).toFixed(1)} %`;
}

// ---- the page

async function open() {
  const { models } = await call("v1/models");
  $("token-form").hidden = true;
  $("model").replaceChildren(...models.map((name) => new Option(name, name)));
  $("models").hidden = models.length < 2;
  $("about").textContent = models.length === 1 ? `by the model ${models[0]}` : "";
  await read();
}

async function read() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const name = parts.get("model");
  const names = [...$("model").options].map((option) => option.value);
  if (name && !names.includes(name)) throw new Failure(`This server has no model ${name}, but ${names.join(", ")}.`);
  if (name) $("model").value = name;
  turn(parts.get("find") === "head" ? "head" : "tail");
  $("head").value = $("tail").value = "";
  known().value = parts.get("entity") ?? "";
  $("relation").value = parts.get("relation") ?? "";
  await ask();
}

function clear() {
  asked += 1;
  last = null;
  $("answers").hidden = true;
}

for (const id of ["head", "tail"]) new Completion($(id), "entity");
new Completion($("relation"), "relation");

$("query").addEventListener("submit", (event) => {
  event.preventDefault();
  const target = address(query());
  if (target === location.hash) ask().catch(tell);
  else location.hash = target; // reads it
});
for (const radio of document.querySelectorAll("input[name=find]")) {
  radio.addEventListener("change", () => {
    turn(radio.value);
    const before = $(radio.value); // the side that is sought now was the known one
    [known().value, before.value] = [before.value, ""];
    clear();
    const { entity, relation } = query();
    if (entity && relation) $("query").requestSubmit();
    else say("");
  });
}
$("model").addEventListener("change", () => {
  clear();
  location.hash = address({ find: sought() });
});
$("new-only").addEventListener("change", show);
$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value.trim();
  say("");
  open().catch(tell);
});
addEventListener("hashchange", () => {
  clear();
  read().catch(tell);
});
open().catch(tell);
