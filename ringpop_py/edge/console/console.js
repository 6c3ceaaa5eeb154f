// Keeps the page up to date. The node sends parts of it as HTML, each when it has changed.
"use strict";

const byId = (id) => document.getElementById(id);
const live = byId("live");

function put(id, html) {
  const place = byId(id);
  const scrolled = [...place.querySelectorAll(".scroll, .events")].map((box) => [box.scrollLeft, box.scrollTop]);
  const focused = place.contains(document.activeElement) ? pathOf(document.activeElement, place) : null;
  place.innerHTML = html;
  place.querySelectorAll(".scroll, .events").forEach((box, number) => {
    [box.scrollLeft, box.scrollTop] = scrolled[number] ?? [0, 0];
  });
  if (focused !== null) place.querySelector(focused)?.focus();
}

// A selector for what has the focus, which stays true when the part is written anew.
function pathOf(element, place) {
  if (element.dataset.act) {
    const { act, member, keyspace } = element.dataset;
    const of = member === undefined ? `[data-keyspace="${CSS.escape(keyspace)}"]` : `[data-member="${CSS.escape(member)}"]`;
    return `[data-act="${act}"]${of}`;
  }
  const href = element.getAttribute("href");
  return href === null ? null : `[href="${CSS.escape(href)}"]`;
}

function follow() {
  const events = new EventSource("/ui/events");
  events.addEventListener("open", () => { live.textContent = "live"; live.className = "good"; });
  events.addEventListener("error", () => {
    live.textContent = "the node does not answer; this is what was known";
    live.className = "bad";
    // After an answer that is no stream, a browser does not try again by itself.
    if (events.readyState === EventSource.CLOSED) setTimeout(follow, 3000);
  });
  for (const id of ["head", "problems", "wheel", "timeline", "matrix", "members", "keyspaces", "work", "events"]) {
    events.addEventListener(id, (event) => put(id, JSON.parse(event.data)));
  }
}

byId("lookup").addEventListener("submit", async (event) => {
  event.preventDefault();
  const key = new FormData(event.target).get("key");
  const answer = await fetch(`/ui/found?${new URLSearchParams({ key })}`);
  if (answer.ok) byId("found").innerHTML = await answer.text();
  else byId("found").textContent = (await answer.json()).message;
});

const questions = {
  drain: (name) => `Take all keys from ${name}? It goes on serving.`,
  undrain: (name) => `Let ${name} own keys again?`,
  leave: (name) => `Take ${name} out of the ring? It goes on serving.`,
  join: (name) => `Bring ${name} back into the ring?`,
  heal: () => "Look for other sides of a split at all known hosts, and merge with them?",
};

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-act]");
  if (button === null) return;
  const { act, member, keyspace } = button.dataset;
  const asked = keyspace === undefined ? { act, member } : { act, keyspace };
  let question = keyspace === undefined ? questions[act](member) : null;
  if (question === null) {  // what would be done?
    const [done, answer] = await post({ ...asked, dry_run: true });
    if (!done) { live.textContent = `${act} ${keyspace}: ${answer}`; return; }
    question = [`Move partitions of ${keyspace} like this?`, ...answer.answer.lines].join("\n");
  }
  const dialog = byId("ask");
  byId("question").textContent = question;
  byId("answer").textContent = "";
  dialog.returnValue = "no";
  dialog.onclose = async () => {
    if (dialog.returnValue !== "yes") return;
    const [done, answer] = await post(asked);
    live.textContent = `${act} ${keyspace ?? member}: ${done ? "done" : answer}`;
  };
  dialog.showModal();
});

// Returns whether the node did it, and its answer, or why not.
async function post(asked) {
  try {
    const answer = await fetch("/ui/act", {
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

document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !["INPUT", "TEXTAREA"].includes(document.activeElement.tagName)) {
    event.preventDefault();
    byId("lookup").elements.key.focus();
  }
});

follow();
