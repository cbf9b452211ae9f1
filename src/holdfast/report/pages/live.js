// A live page: the server's parts, put in place as they change. Each part is HTML that the server's
// templates have escaped. What a reader has opened, selected or focused stays as it is.
"use strict";
(() => {
  const told = JSON.parse(document.getElementById("live").textContent);
  const trusted = window.trustedTypes
    ? window.trustedTypes.createPolicy("holdfast", { createHTML: (html) => html })
    : { createHTML: (html) => html };
  const state = document.getElementById("live-state");
  const waiting = new Map(); // by place: parts that a selection keeps from being replaced
  const STALE_MS = 30000; // the server shows a sign of life every 10 s
  const STOPS = "summary, button, a, input, [tabindex]";
  let mark = told.mark, source = null, retry = 0, refused = "";
  let last = Date.now(), tried = last; // when the server was heard, and when it was asked

  const placeOf = (id) => {
    const place = document.getElementById(id);
    return place && (place.hasAttribute("data-section") || place.id === "timeline-words") ? place : null;
  };

  function isHeld(place) {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && selection.containsNode(place, true);
  }

  // What of a place stays the same when others come before it: its id, or its number by an id around it.
  function nameOf(one, sort) {
    if (one.id) return [one.id];
    const around = one.parentElement.closest("[id]");
    return [around.id, sort, [...around.querySelectorAll(sort)].indexOf(one)];
  }

  function named([id, sort, number]) {
    const found = document.getElementById(id);
    return found && sort ? found.querySelectorAll(sort)[number] : found;
  }

  // Which details are open; where scrolled things are; what has the focus.
  function kept(place) {
    const open = [...place.querySelectorAll("details[open]")].map((one) => nameOf(one, "details"));
    const scrolled = [...place.querySelectorAll("pre, .scroll")]
      .filter((one) => one.scrollLeft || one.scrollTop)
      .map((one) => [nameOf(one, "pre, .scroll"), one.scrollLeft, one.scrollTop]);
    const active = document.activeElement;
    const focused = place.contains(active) && active.matches(STOPS) ? nameOf(active, STOPS) : null;
    return () => {
      for (const name of open) { const one = named(name); if (one) one.open = true; }
      for (const [name, left, top] of scrolled) {
        const one = named(name);
        if (one) [one.scrollLeft, one.scrollTop] = [left, top];
      }
      const again = focused && named(focused);
      if (again) again.focus({ preventScroll: true });
    };
  }

  function put(place, html) {
    const restore = kept(place);
    place.innerHTML = trusted.createHTML(html);
    restore();
  }

  function offer(place, html) {
    if (isHeld(place)) { waiting.set(place, html); return; }
    waiting.delete(place);
    put(place, html);
    if (place.id === "head") titled(place);
  }

  function titled(head) {
    const one = head.querySelector("[data-title]");
    if (one) document.title = one.dataset.title;
  }

  function take(id, html) {
    if (id === "course") {
      document.dispatchEvent(new CustomEvent("holdfast:course", { detail: JSON.parse(html) }));
      return;
    }
    const place = placeOf(id);
    if (place) offer(place, html);
  }

  function live() {
    last = tried = Date.now();
    retry = 0;
    refused = "";
    say();
  }

  function hear(event) {
    live();
    const data = JSON.parse(event.data);
    mark = event.lastEventId || mark;
    if (told.reload && !("waiting" in data.parts) && "head" in data.parts) { location.reload(); return; }
    document.dispatchEvent(new CustomEvent("holdfast:parts", { detail: { parts: data.parts, gone: data.gone, put: offer } }));
    for (const [id, html] of Object.entries(data.parts)) take(id, html);
    for (const id of data.gone) take(id, "");
  }

  function age(ms) {
    const s = Math.max(0, Math.round(ms / 1000));
    for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) if (s >= 2 * size) return `${Math.floor(s / size)} ${unit}`;
    return `${Math.floor(s / 10) * 10} s`; // not another one every second: this is read out
  }

  function say() {
    const is = source !== null && source.readyState === EventSource.OPEN && Date.now() - last < STALE_MS;
    state.dataset.is = is ? "on" : "off";
    const words = is ? "live" : `${refused || "no answer"}; this is ${age(Date.now() - last)} old`;
    if (state.textContent !== words) state.textContent = words;
  }

  // A server that is frozen or gone, or a network that slept, leaves a connection that looks open.
  function watch() {
    if (source && Date.now() - tried > STALE_MS) connect();
    say();
  }

  // Why it answers, and does not show: an event source does not tell.
  async function ask() {
    try {
      const { status } = await fetch(told.url, { method: "HEAD" });
      refused = { 401: "log in again: load this page anew", 503: "too many look at once" }[status] || "";
    } catch (error) {
      refused = "";
    }
    say();
  }

  function connect() {
    if (source) source.close();
    tried = Date.now();
    source = new EventSource(`${told.url}${told.url.includes("?") ? "&" : "?"}mark=${encodeURIComponent(mark)}`);
    source.addEventListener("open", live);
    source.addEventListener("still", live);
    source.addEventListener("parts", hear);
    source.addEventListener("error", () => {
      say();
      if (source === null || source.readyState !== EventSource.CLOSED) return; // it tries again by itself
      ask();
      retry = Math.min(retry + 1, 10);
      setTimeout(() => { if (source && source.readyState === EventSource.CLOSED) connect(); }, 1000 * retry);
    });
  }

  function leave() {
    if (source) source.close();
    source = null;
  }

  // A page that nobody sees asks for nothing.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) leave();
    else if (!source) connect();
    say();
  });
  document.addEventListener("selectionchange", () => {
    for (const [place, html] of [...waiting]) if (place.isConnected) offer(place, html); else waiting.delete(place);
  });
  window.addEventListener("pagehide", leave);
  window.addEventListener("pageshow", () => { if (!source && !document.hidden) connect(); });
  if (!document.hidden) connect();
  setInterval(watch, 1000);
})();
