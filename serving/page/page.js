// Queries the server that this page comes from. The query is in the address behind #, so that it can be shared.

const $ = (id) => document.getElementById(id);
let token = "";
let model = "";
let newest = 0; // number of the newest query: the answer to an older one is dropped

async function call(path, body) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  let reply;
  try {
    reply = await fetch(path, body ? { method: "POST", body: JSON.stringify(body), headers } : { headers });
  } catch {
    throw new Error("The server does not answer.");
  }
  if (reply.status === 401) {
    $("token-form").hidden = false;
    throw new Error(token ? "The server does not accept this token." : "The server needs a token.");
  }
  const answer = await reply.json().catch(() => ({}));
  if (!reply.ok) throw new Error(answer.error || `The server answered with status ${reply.status}.`);
  return answer;
}

function message(text, error = false) {
  $("message").textContent = text;
  $("message").classList.toggle("error", error);
}

const fail = (error) => message(error.message, true);
const find = () => document.querySelector("input[name=find]:checked").value;
const given = () => (find() === "tail" ? "head" : "tail");

const address = (query) => `#${new URLSearchParams(Object.entries(query).filter(([, value]) => value))}`;

function formQuery() {
  const [entity, relation] = [$(given()).value, $("relation").value];
  return { find: find(), [given()]: entity, relation, k: $("k").value, new: $("new-only").checked ? "1" : "" };
}

function fillForm() {
  const query = new URLSearchParams(location.hash.slice(1));
  turn(query.get("find") === "head" ? "head" : "tail");
  for (const id of ["head", "relation", "tail"]) $(id).value = query.get(id) ?? "";
  $("k").value = Math.max(1, Math.floor(query.get("k") ?? 10)) || 10;
  $("new-only").checked = query.has("new");
}

function turn(side) {
  $(`find-${side}`).checked = true;
  $("triple").dataset.find = side;
}

async function namesLike(kind, prefix, limit) {
  const query = new URLSearchParams({ kind, prefix, limit });
  return (await call(`v1/models/${encodeURIComponent(model)}/names?${query}`)).names;
}

async function suggest(input) {
  const text = input.value;
  const names = await namesLike(input.dataset.kind, text, 20);
  if (input.value === text) input.list.replaceChildren(...names.map((name) => new Option(name, name)));
}

async function answer() {
  const number = ++newest;
  $("answers").hidden = true;
  const missing = [given(), "relation"].find((id) => !$(id).value.trim());
  if (missing) {
    $(missing).focus();
    message(`Choose a ${missing} to begin.`);
    return;
  }
  const { find: side, relation, k, new: newOnly, [given()]: entity } = formQuery();
  const triple = side === "tail" ? `${entity} → ${relation} → ?` : `? → ${relation} → ${entity}`;
  document.title = `${triple} · ${model}`;
  const inputs = { [given()]: [entity], relation: [relation], k: [Math.min(Number(k), 1000)] }; // no model is exported for more
  const body = { signature_name: `predict_${newOnly ? "new_" : ""}${side}s`, inputs };
  const path = `v1/models/${encodeURIComponent(model)}:predict`;
  const { outputs, error } = await call(path, body).catch((error) => ({ error }));
  if (number !== newest) return;
  if (error) throw error;
  if (!outputs.known[0]) {
    const found = await call(path, { signature_name: "embed", inputs: { entity: [entity] } });
    const [kind, name] = found.outputs.known[0] ? ["relation", relation] : ["entity", entity];
    const near = (await namesLike(kind, name, 3).catch(() => [])).join(" or ");
    throw new Error(`The model does not know the ${kind} ${name}.${near && ` Did you mean ${near}?`}`);
  }
  const names = outputs[side][0].filter((name) => name);
  $("question").textContent = triple;
  $("sought").textContent = side === "tail" ? "Tail" : "Head";
  const rows = names.map((name, i) => row(i + 1, name, outputs.score[0][i], outputs.probability[0][i], outputs.seen[0][i]));
  document.querySelector("#answers tbody").replaceChildren(...rows);
  $("answers").hidden = rows.length === 0;
  const most = outputs[side][0].length < Number($("k").value) ? `: the model was exported for at most ${outputs[side][0].length}` : "";
  message(`${names.length} ${names.length === 1 ? side : `${side}s`}, best first${most}.`);
}

function row(rank, name, score, probability, seen) {
  const link = element("a", "", name);
  link.href = address({ head: name, k: $("k").value });
  const bar = element("div", "bar");
  bar.style.width = `${100 * probability}%`;
  const likely = element("div", "likely", element("div", "track", bar), element("span", "number", percent(probability)));
  const known = seen ? element("span", "known", "✓", element("span", "", " known fact")) : "";
  const cells = [["number", rank], ["name", link], ["", likely], ["number", score.toFixed(3)], ["", known]];
  return element("tr", "", ...cells.map(([name, content]) => element("td", name, content)));
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

async function open() {
  model = (await call("v1/models")).models[0];
  $("token-form").hidden = true;
  $("about").textContent = `by the model ${model}`;
  fillForm();
  await answer();
}

for (const input of document.querySelectorAll("input[list]")) {
  for (const event of ["input", "focus"]) input.addEventListener(event, () => suggest(input).catch(fail));
  input.addEventListener("change", () => { // removes spaces around the text, unless a suggested name has them
    if (![...input.list.options].some((option) => option.value === input.value)) input.value = input.value.trim();
  });
}
for (const radio of document.querySelectorAll("input[name=find]")) {
  radio.addEventListener("change", () => {
    const before = $(radio.value); // the entity that was given is now on the other side
    turn(radio.value);
    [$(given()).value, before.value] = [before.value, ""];
    location.hash = address(formQuery());
  });
}
$("query").addEventListener("submit", (event) => {
  event.preventDefault();
  const target = address(formQuery());
  if (target === location.hash) answer().catch(fail);
  else location.hash = target;
});
$("new-only").addEventListener("change", () => $("query").requestSubmit());
$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value.trim();
  if (/[^\x21-\x7e]/.test(token)) { // an HTTP header cannot contain it
    token = "";
    message("The server does not accept this token.", true);
    return;
  }
  open().catch(fail);
});
addEventListener("hashchange", () => {
  fillForm();
  answer().catch(fail);
});
open().catch(fail);
