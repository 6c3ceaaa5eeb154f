// Keeps the page up to date. The node sends parts of it as HTML, each when it has changed, and a
// beat each second; how old the page is, this clock says, which goes on when the node does not.
"use strict";

const LATE_S = 3, STALE_S = 10;
const PARTS = ["banner", "head", "nav", "problems", "series", "matrix", "owned", "ring", "bars", "tally", "members", "keyspaces", "work", "events"];
const byId = (id) => document.getElementById(id);
const [drawer, detail, said, live] = ["drawer", "detail", "said", "live"].map(byId);
let beat = null, heardAt = performance.now(), events = null, askedAt = 0;

// Parts.

function put(id, html) {
  const place = byId(id);
  const boxes = () => [place, ...place.querySelectorAll(".scroll, .tb, .ev")];
  const scrolled = boxes().map((box) => [box.scrollLeft, box.scrollTop]);
  const focused = place.contains(document.activeElement) ? pathOf(document.activeElement) : null;
  document.dispatchEvent(new Event("redraw"));
  place.innerHTML = html;
  boxes().forEach((box, number) => { [box.scrollLeft, box.scrollTop] = scrolled[number] ?? [0, 0]; });
  if (focused !== null) place.querySelector(focused)?.focus();
  document.dispatchEvent(new Event("redrawn"));
  if (id === "banner") name();
  if (id === "members") { filter(); if (drawer.open && drawer.dataset.url) fill(); }
  tick();
}

// A selector for what has the focus, which stays true when the part is written anew.
function pathOf(element) {
  const kept = ["data-act", "data-member", "data-keyspace", "data-copy", "href", "class"].filter((key) => element.hasAttribute(key));
  return element.localName + kept.map((key) => `[${key}="${CSS.escape(element.getAttribute(key))}"]`).join("");
}

function follow() {
  events?.close();
  askedAt = performance.now();
  events = new EventSource("ui/events");
  for (const id of PARTS) events.addEventListener(id, (event) => put(id, JSON.parse(event.data)));
  events.addEventListener("beat", (event) => {
    beat = JSON.parse(event.data);
    heardAt = performance.now();
    tick();
  });
}

// Age.

const span = (s) => (s < 120 ? `${Math.round(s)} s` : s < 7200 ? `${Math.round(s / 60)} min` : `${Math.round(s / 3600)} h`);

function tick() {
  const age = (performance.now() - heardAt) / 1000;
  const [level, word] = age <= LATE_S ? ["ok", "live"] : age <= STALE_S ? ["warn", "late"] : ["unk", "stale"];
  live.className = `live ${level}`;
  live.textContent = `${word} · ${Math.floor(age)} s`;
  const stale = level === "unk";
  if (stale !== document.body.classList.contains("stale")) {
    document.body.classList.toggle("stale", stale);
    name();
  }
  document.querySelectorAll("[data-act], #lookup button").forEach((button) => { button.disabled = stale; });
  document.querySelectorAll("[data-age]").forEach((place) => { place.textContent = span(age); });
  if (beat === null) return;
  document.querySelectorAll("[data-at]").forEach((place) => { place.textContent = beat.clock; });
  document.querySelectorAll("[data-since]").forEach((place) => {
    place.textContent = span(Math.max(0, beat.at + age - place.dataset.since));
  });
}

// After an answer that is no stream, a browser does not try again; and a connection may be dead.
function retry() {
  const waited = (performance.now() - askedAt) / 1000, silent = (performance.now() - heardAt) / 1000;
  if (waited > STALE_S ? silent > STALE_S : waited > LATE_S && events.readyState === EventSource.CLOSED) follow();
}

function name() {
  const { title, icon } = document.querySelector(document.body.classList.contains("stale") ? ".ban.old" : ".ban.now").dataset;
  document.title = title;
  if (byId("icon").href !== icon) byId("icon").href = icon;
}

// Members.

function filter() {
  const wanted = byId("filter").value.trim().toLowerCase();
  document.querySelectorAll("#members tr[data-find]").forEach((row) => {
    row.hidden = !row.dataset.find.toLowerCase().includes(wanted);
  });
}
byId("filter").addEventListener("input", filter);

// The drawer: a member or a key.

let back = null;

async function fill(url = drawer.dataset.url) {
  try {
    const answer = await fetch(url);
    if (url !== drawer.dataset.url) return;  // another one was opened since
    if (answer.ok) put("detail", await answer.text());
    else detail.textContent = (await answer.json()).message;
  } catch (error) {
    if (!drawer.open) say(`${url}: ${error.message}`);
  }
}

async function open(url, from) {
  back = from;
  drawer.dataset.url = url;
  await fill();
  if (!detail.hasChildNodes()) return;
  if (!drawer.open) drawer.show();
  (detail.querySelector("h2") ?? drawer).focus();
}

drawer.addEventListener("close", () => {
  drawer.dataset.url = "";
  detail.replaceChildren();
  const there = back?.isConnected ? back : back && document.querySelector(pathOf(back));
  there?.focus();
});

byId("lookup").addEventListener("submit", (event) => {
  event.preventDefault();
  open(`ui/found?${new URLSearchParams(new FormData(event.target))}`, byId("key"));
});

document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !["INPUT", "TEXTAREA"].includes(document.activeElement.tagName)) {
    event.preventDefault();
    byId("key").focus();
  } else if (event.key === "Escape" && drawer.open && !byId("ask").open) drawer.close();
});

// Acts.

const questions = {
  drain: (name) => `Take all keys from ${name}? It goes on serving.`,
  undrain: (name) => `Let ${name} own keys again?`,
  leave: (name) => `Take ${name} out of the ring? It goes on serving.`,
  join: (name) => `Bring ${name} back into the ring?`,
  heal: () => "Look for other sides of a split at all known hosts, and merge with them?",
};

function say(text) {
  said.textContent = text;
}

async function act({ act, member, keyspace }) {
  const asked = keyspace === undefined ? { act, member } : { act, keyspace };
  let question = keyspace === undefined ? questions[act](member) : null;
  if (question === null) {  // what would be done?
    const [done, answer] = await post({ ...asked, dry_run: true });
    if (!done) { say(`${act} ${keyspace}: ${answer}`); return; }
    question = [`Move partitions of ${keyspace} like this?`, ...answer.answer.lines].join("\n");
  }
  const dialog = byId("ask");
  byId("question").textContent = question;
  dialog.returnValue = "no";
  dialog.onclose = async () => {
    if (dialog.returnValue !== "yes") return;
    const [done, answer] = await post(asked);
    say(`${act} ${keyspace ?? member}: ${done ? "done" : answer}`);
  };
  dialog.showModal();
}

// Returns whether the node did it, and its answer, or why not.
async function post(asked) {
  try {
    const answer = await fetch("ui/act", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(asked),
    });
    const said = await answer.json();
    return [answer.ok, answer.ok ? said : said.message];
  } catch (error) {
    return [false, error.message];
  }
}

async function copy(button) {
  const code = button.previousElementSibling;
  getSelection().selectAllChildren(code);  // where the clipboard is not ours to use, all is marked
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  } catch { say("The command is marked: copy it."); }
}

document.addEventListener("click", (event) => {
  say("");
  const button = event.target.closest("[data-act], [data-copy], a[data-member]");
  if (button === null || event.ctrlKey || event.metaKey) return;
  if (button.dataset.copy !== undefined) copy(button);
  else if (button.dataset.act !== undefined) act(button.dataset);
  else {
    event.preventDefault();
    open(`ui/member?${new URLSearchParams({ member: button.dataset.member })}`, button);
  }
});

document.documentElement.classList.add("js");
follow();
tick();
setInterval(() => { tick(); retry(); }, 1000);
