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
    return `[data-act="${element.dataset.act}"][data-member="${CSS.escape(element.dataset.member)}"]`;
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
  for (const id of ["head", "problems", "wheel", "timeline", "matrix", "members", "keyspaces", "events"]) {
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

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-act]");
  if (button === null) return;
  const { act, member } = button.dataset;
  const dialog = byId("ask");
  byId("question").textContent = questions[act](member);
  byId("answer").textContent = "";
  dialog.returnValue = "no";
  dialog.onclose = () => { if (dialog.returnValue === "yes") perform(act, member); };
  dialog.showModal();
});

async function perform(act, member) {
  let said = `${act} ${member}: done`;
  try {
    const answer = await fetch("/ui/act", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ act, member }),
    });
    if (!answer.ok) said = `${act} ${member}: ${(await answer.json()).message}`;
  } catch (error) {
    said = `${act} ${member}: ${error.message}`;
  }
  live.textContent = said;
}

document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !["INPUT", "TEXTAREA"].includes(document.activeElement.tagName)) {
    event.preventDefault();
    byId("lookup").elements.key.focus();
  }
});

follow();
