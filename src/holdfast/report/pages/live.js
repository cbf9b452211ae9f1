// A live page: the server's parts, put in place as they change. Each part is HTML that the server's
// templates have escaped. What a reader has opened, selected or focused stays as it is.
"use strict";
(() => {
  const told = JSON.parse(document.getElementById("live").textContent);
  const trusted = window.trustedTypes
    ? window.trustedTypes.createPolicy("holdfast", { createHTML: (html) => html })
    : { createHTML: (html) => html };
  const state = document.getElementById("live-state");
  const waiting = new Map(); // parts that a selection keeps from being replaced
  let mark = told.mark, source = null, heard = performance.now(), retry = 0, last = Date.now();

  const placeOf = (id) => {
    const place = document.getElementById(id);
    return place && (place.hasAttribute("data-section") || place.id === "timeline-words") ? place : null;
  };

  function isHeld(place) {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && selection.containsNode(place, true);
  }

  // Which details are open, by their id or place; where scrolled things are; what has the focus.
  function kept(place) {
    const details = [...place.querySelectorAll("details")];
    const open = new Set(details.flatMap((one, i) => (one.open ? [one.id || i] : [])));
    const scrolled = [...place.querySelectorAll("pre, .scroll")].map((one) => [one.scrollLeft, one.scrollTop]);
    const stops = [...place.querySelectorAll("summary, button, a, input, [tabindex]")];
    const focused = stops.indexOf(document.activeElement);
    return () => {
      place.querySelectorAll("details").forEach((one, i) => { one.open = open.has(one.id || i); });
      place.querySelectorAll("pre, .scroll").forEach((one, i) => {
        if (scrolled[i]) [one.scrollLeft, one.scrollTop] = scrolled[i];
      });
      if (focused >= 0) {
        const again = place.querySelectorAll("summary, button, a, input, [tabindex]")[focused];
        if (again) again.focus({ preventScroll: true });
      }
    };
  }

  function put(place, html) {
    const restore = kept(place);
    place.innerHTML = trusted.createHTML(html);
    restore();
  }

  function take(id, html) {
    if (id === "course") {
      document.dispatchEvent(new CustomEvent("holdfast:course", { detail: JSON.parse(html) }));
      return;
    }
    const place = placeOf(id);
    if (!place) return;
    if (isHeld(place)) waiting.set(id, html);
    else { waiting.delete(id); put(place, html); }
  }

  function hear(event) {
    heard = performance.now();
    last = Date.now();
    retry = 0;
    const data = JSON.parse(event.data);
    mark = event.lastEventId || mark;
    if (told.reload && !("waiting" in data.parts) && "head" in data.parts) { location.reload(); return; }
    document.dispatchEvent(new CustomEvent("holdfast:parts", { detail: { parts: data.parts, gone: data.gone, put } }));
    for (const [id, html] of Object.entries(data.parts)) take(id, html);
    for (const id of data.gone) take(id, "");
    say();
  }

  function say() {
    const live = source !== null && source.readyState === EventSource.OPEN;
    state.dataset.is = live ? "on" : "off";
    const time = new Date(last).toLocaleTimeString("en-GB");
    const words = live ? "live" : `no answer; this is of ${time}`;
    if (state.textContent !== words) state.textContent = words;
  }

  function connect() {
    if (source) source.close();
    source = new EventSource(`${told.url}${told.url.includes("?") ? "&" : "?"}mark=${encodeURIComponent(mark)}`);
    source.addEventListener("open", () => { heard = performance.now(); retry = 0; say(); });
    source.addEventListener("parts", hear);
    source.addEventListener("error", () => {
      say();
      if (source.readyState !== EventSource.CLOSED) return; // it tries again by itself
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
    for (const [id, html] of [...waiting]) take(id, html);
  });
  window.addEventListener("pagehide", leave);
  window.addEventListener("pageshow", () => { if (!source && !document.hidden) connect(); });
  if (!document.hidden) connect();
  setInterval(say, 1000);
})();
