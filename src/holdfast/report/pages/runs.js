// The list: rows in the server's order, search, two picked runs, and the keyboard.
"use strict";
(() => {
  const rows = document.getElementById("rows");
  const search = document.getElementById("search");
  const compare = document.getElementById("compare");
  const found = document.getElementById("found");
  const picked = [];
  let at = null;

  const all = () => [...rows.rows];
  const shown = () => all().filter((row) => !row.hidden);

  // --- Search -------------------------------------------------------------------------------

  function textOf(row) {
    return ["th", "[data-col=state]", "[data-col=why]"].map((part) => (row.querySelector(part) || row).textContent).join(" ").toLowerCase();
  }

  function filter() {
    // What the server was asked for, it has found.
    const wanted = search.value === search.defaultValue ? "" : search.value;
    const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of all()) {
      const text = words.length ? textOf(row) : "";
      row.hidden = !words.every((word) => text.includes(word));
      if (!row.hidden) count += 1;
    }
    found.textContent = words.length ? `${count} found` : "";
    if (at && at.hidden) select(null);
  }

  // What is not on this page is the server's to find.
  function hasPages() { return document.querySelector("#pages [data-pages]") !== null; }

  function ask() {
    const words = search.value.trim();
    location.assign(words ? `/?${new URLSearchParams({ q: words })}` : "/");
  }

  // --- Picking ------------------------------------------------------------------------------

  function pick(row, wanted) {
    const name = row.dataset.run;
    const place = picked.indexOf(name);
    if (wanted && place < 0) picked.push(name);
    if (!wanted && place >= 0) picked.splice(place, 1);
    while (picked.length > 2) picked.shift();
    marks();
  }

  function marks() {
    for (const row of all()) {
      const box = row.querySelector("input[type=checkbox]");
      if (box) box.checked = picked.includes(row.dataset.run);
    }
    compare.disabled = picked.length !== 2;
    compare.textContent = picked.length === 2 ? `Compare ${picked[0]} and ${picked[1]}` : picked.length ? `Compare ${picked[0]} and …` : "Compare two";
  }

  function go() {
    if (picked.length === 2) location.assign(`/compare?${new URLSearchParams({ a: picked[0], b: picked[1] })}`);
  }

  // --- Live ---------------------------------------------------------------------------------

  function order(names) {
    const known = new Map(all().map((row) => [row.dataset.run, row]));
    const focused = document.activeElement, wanted = new Set(names);
    // First what goes, so that what stays need not move: what moves loses the focus.
    for (const [name, row] of known) {
      if (wanted.has(name)) continue;
      if (row === at) at = null;
      const place = picked.indexOf(name);
      if (place >= 0) picked.splice(place, 1);
      row.remove();
    }
    let next = rows.firstElementChild;
    for (const name of names) {
      let row = known.get(name);
      if (!row) {
        row = document.createElement("tr");
        row.dataset.run = name;
      }
      if (row === next) next = next.nextElementSibling;
      else rows.insertBefore(row, next);
    }
    if (rows.contains(focused) && document.activeElement !== focused) focused.focus({ preventScroll: true });
  }

  document.addEventListener("holdfast:parts", (event) => {
    const { parts, put } = event.detail;
    if ("order" in parts) order(JSON.parse(parts.order));
    const changed = Object.keys(parts).filter((id) => id.startsWith("row:"));
    if (changed.length) {
      const known = new Map(all().map((row) => [row.dataset.run, row]));
      for (const id of changed) {
        const row = known.get(id.slice(4));
        if (row) put(row, parts[id]);
      }
    }
    if (changed.length || "order" in parts) { marks(); filter(); }
  });

  // --- Keyboard -----------------------------------------------------------------------------

  function select(row) {
    if (at) at.classList.remove("at");
    at = row;
    if (!at) return;
    at.classList.add("at");
    const link = at.querySelector("th a");
    if (link) link.focus({ preventScroll: true });
    at.scrollIntoView({ block: "nearest" });
  }

  function move(by) {
    const here = shown();
    if (!here.length) return;
    const place = at ? here.indexOf(at) : by > 0 ? -1 : here.length;
    select(here[Math.max(0, Math.min(here.length - 1, place + by))]);
  }

  const KEYS = {
    j: () => move(1),
    k: () => move(-1),
    x: () => { if (at) pick(at, !picked.includes(at.dataset.run)); },
    c: go,
    "/": () => { search.focus(); search.select(); },
    Escape: () => { search.value = ""; if (search.defaultValue) ask(); else filter(); if (document.activeElement === search) search.blur(); },
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target === search;
    if (typing && event.key === "Enter") {
      if (hasPages()) ask();
      else select(shown()[0] || null);
      return;
    }
    if (typing && event.key !== "Escape") return;
    const act = KEYS[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  rows.addEventListener("focusin", (event) => {
    const row = event.target.closest("tr");
    if (row && row !== at) { if (at) at.classList.remove("at"); at = row; at.classList.add("at"); }
  });
  rows.addEventListener("change", (event) => pick(event.target.closest("tr"), event.target.checked));
  document.getElementById("counts").addEventListener("click", (event) => {
    const button = event.target.closest("[data-state]");
    if (!button) return;
    search.value = search.value === button.dataset.state ? "" : button.dataset.state;
    if (hasPages()) ask();
    else filter();
  });
  document.addEventListener("selectionchange", marks); // rows that a selection held back are put then
  search.addEventListener("input", filter);
  compare.addEventListener("click", go);
  search.hidden = false;
  compare.hidden = false;
  marks();
  filter();
})();
