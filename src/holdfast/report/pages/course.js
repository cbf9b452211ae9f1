// The time line: pieces that the ledger thinned, drawn on a canvas at any zoom from the whole run to
// a microsecond. No data is fetched and no text becomes HTML. `holdfast:course`, an event on the
// document with new data in `detail`, draws these instead: a live page sends it.
"use strict";
(() => {
  const place = document.getElementById("course-place");
  const canvas = document.getElementById("course-canvas");
  const told = document.getElementById("course-told");
  const viewWords = document.getElementById("course-view");
  const still = document.getElementById("course-still");
  const pen = canvas.getContext("2d");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const LEAST_US = 20; // the narrowest view
  const TOP = 22, EVENTS = 20, STRIP = 74, AXIS = 22, WHOLE = 16, GAP = 6;
  const HEIGHT = TOP + EVENTS + STRIP + AXIS + GAP + WHOLE + 4;
  let data, start, view, at, wanted = 0, ratio = 1, paints;

  // --- Data ---------------------------------------------------------------------------------

  function load(given) {
    const follows = data === undefined || view[1] >= data.end;
    const all = data === undefined || view[1] - view[0] >= data.end;
    data = given;
    const count = data.d.length;
    start = new Float64Array(count + 1);
    data.mixed = new Map();
    data.step = new Float64Array(count);
    let step = 0, next = 0;
    for (let i = 0; i < count; i++) {
      start[i + 1] = start[i] + data.d[i];
      step += data.s[i];
      data.step[i] = step;
      if (data.k[i] < 0) {
        const kinds = [];
        const stop = next + 1 + 2 * data.m[next];
        for (next += 1; next < stop; next += 2) kinds.push([data.m[next], data.m[next + 1]]);
        data.mixed.set(i, kinds);
      }
    }
    const span = view ? view[1] - view[0] : 0;
    if (all || span > data.end) view = [0, Math.max(data.end, LEAST_US)];
    else if ((follows && data.live) || view[1] > data.end) view = [data.end - span, data.end];
    if (at > data.end) at = undefined; // it began anew
    legend();
    redraw();
  }

  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

  // The piece in which a moment lies.
  function pieceAt(us) {
    let low = 0, high = data.d.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (start[middle] <= us) low = middle; else high = middle - 1;
    }
    return low;
  }

  const kindsOf = (i) => data.mixed.get(i) || [[data.k[i], data.d[i]]];

  // --- Words --------------------------------------------------------------------------------

  const two = (number) => String(number).padStart(2, "0");

  function duration(us) {
    const s = us / 1e6;
    if (!us) return "0 s";
    if (s < 0.001) return `${us.toFixed(0)} µs`;
    if (s < 0.1) return `${(s * 1000).toPrecision(3)} ms`;
    if (s < 60) return `${s.toPrecision(3)} s`;
    const whole = Math.round(s);
    for (const [unit, size, part, smaller] of [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]])
      if (whole >= size) {
        const rest = Math.floor((whole % size) / smaller);
        return `${Math.floor(whole / size)} ${unit}${rest ? ` ${two(rest)} ${part}` : ""}`;
      }
    return `${whole} s`;
  }

  // A time since the request: days, hours, minutes, seconds, as far as the view needs them.
  function since(us, span) {
    if (us < 60e6 || span > 60 * 86400e6) return duration(us);
    const s = us / 1e6;
    const days = Math.floor(s / 86400);
    const time = `${two(Math.floor(s / 3600) % 24)}:${two(Math.floor(s / 60) % 60)}`;
    const rest = span > 3600e6 ? "" : span > 20e6 ? `:${two(Math.floor(s) % 60)}` : `:${(s % 60).toFixed(3).padStart(6, "0")}`;
    return `${days ? `${days} d ` : ""}${time}${rest}`;
  }

  const dateOf = (us) => new Date(data.unix_ms + us / 1000);
  const dayOf = (date) => `${date.getUTCFullYear()}-${two(date.getUTCMonth() + 1)}-${two(date.getUTCDate())}`;

  // A moment, as exactly as the view asks for.
  function moment(us, span) {
    if (data.unix_ms === null) return `+${since(us, span)}`;
    const date = dateOf(us), day = dayOf(date);
    const time = `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}`;
    if (span > 2 * 86400e6) return `${day} ${time}`;
    const seconds = `${time}:${two(date.getUTCSeconds())}`;
    return span > 20e6 ? seconds : `${seconds}.${String(date.getUTCMilliseconds()).padStart(3, "0")}`;
  }

  // The same with its day, where the run has several: an axis of hours does not say which.
  function dated(us, span) {
    const words = moment(us, span);
    if (data.unix_ms === null) return words;
    const day = dayOf(dateOf(us));
    const isPlain = words.startsWith(day) || (day === dayOf(dateOf(0)) && day === dayOf(dateOf(data.end)));
    return `${isPlain ? "" : `${day} `}${words} UTC`;
  }

  function pieceInWords(i) {
    const kinds = kindsOf(i).slice().sort((a, b) => b[1] - a[1]);
    const length = data.d[i];
    const words = kinds.map(([kind, us]) => {
      const one = data.kinds[kind];
      return kinds.length === 1 ? `${one.name} (${one.words})` : `${one.name} ${duration(us)}`;
    });
    const told = [dated(start[i], length), duration(length), words.join(", ")];
    const launch = data.launches.find((one) => one.start <= start[i] && (one.end === null || start[i] < one.end));
    if (launch) told.push(`attempt ${launch.attempt}`);
    const n = data.n[i];
    if (n === 1) told.push(`step ${data.step[i].toLocaleString("en")}`);
    else if (n > 1) told.push(`${n.toLocaleString("en")} steps up to ${data.step[i].toLocaleString("en")}, the longest ${duration(data.x[i])}`);
    return told.join(" · ");
  }

  function eventsNear(us, reach) {
    const found = [];
    for (const one of data.notices)
      if (Math.abs(one.at - us) < reach) found.push(`notice from ${one.source}${one.deadline === null ? "" : `, due ${duration(one.deadline - one.at)} later`}`);
    for (const [when, attempt] of data.incidents)
      if (Math.abs(when - us) < reach) {
        const launch = data.launches.find((one) => one.attempt === attempt);
        found.push(`attempt ${attempt} ended${launch ? `: ${launch.cause || "unknown cause"}` : ""}`);
      }
    let saves = 0, last = 0;
    for (const [when, step] of data.saves) if (Math.abs(when - us) < reach) { saves += 1; last = step; }
    if (saves) found.push(saves === 1 ? `saved step ${last.toLocaleString("en")}` : `${saves} saves, the last of step ${last.toLocaleString("en")}`);
    return found.length > 4 ? [...found.slice(0, 4), `and ${found.length - 4} more`] : found;
  }

  function tell() {
    const span = view[1] - view[0];
    viewWords.textContent = `${dated(view[0], span)}, ${duration(span)}`;
    if (at === undefined || !data.d.length) return;
    const i = pieceAt(clamp(at, 0, data.end - 1));
    told.textContent = [pieceInWords(i), ...eventsNear(at, (6 * span) / canvas.clientWidth)].join(" · ");
  }

  function legend() {
    const list = document.getElementById("course-legend");
    list.replaceChildren(...data.kinds.map((kind) => {
      const item = document.createElement("li");
      const swatch = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      const part = (tag, attributes) => {
        const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
        for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
        swatch.append(made);
      };
      part("rect", { width: 13, height: 13, rx: 2, fill: kind.colour });
      if (kind.hatch) part("path", { d: kind.hatch === 1 ? "M0 13 13 0M0 6 6 0M7 13 13 7" : "M0 0 13 13M7 0 13 6M0 7 6 13", class: "hatch" });
      swatch.setAttribute("aria-hidden", "true");
      item.append(swatch, `${kind.name} – ${kind.words}`);
      return item;
    }));
    list.hidden = false;
  }

  // --- Drawing ------------------------------------------------------------------------------

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    paints = { ink: of("--ink"), soft: of("--soft"), line: of("--line"), grid: of("--grid"), warning: of("--warning"), panel: of("--panel") };
  }

  // Every piece in a range of time, as rectangles from the bottom up by share; what is narrower than
  // a few pixels is summed up in its columns, where each kind that is no step has a pixel at least.
  function strip(from, to, top, height, width) {
    const scale = width / (to - from);
    const kinds = data.kinds.length;
    const sums = new Float64Array(width * kinds);
    const touched = new Uint8Array(width);
    const last = pieceAt(to);
    for (let i = pieceAt(from); i <= last && i < data.d.length; i++) {
      const x0 = (start[i] - from) * scale, x1 = (start[i + 1] - from) * scale;
      if (x1 - x0 >= 3) {
        stack(kindsOf(i), data.d[i], snapped(Math.max(0, x0)), snapped(Math.min(width, x1)), top, height);
        rows(i, x0, x1, top, height, width);
        continue;
      }
      const parts = kindsOf(i);
      for (let column = Math.max(0, Math.floor(x0)); column < Math.min(width, x1); column++) {
        const share = x1 > x0 ? (Math.min(x1, column + 1) - Math.max(x0, column)) / (x1 - x0) : 1;
        touched[column] = 1;
        for (const [kind, us] of parts) sums[column * kinds + kind] += us * share;
      }
    }
    for (let column = 0; column < width; column++) {
      if (!touched[column]) continue; // a wider piece has all of it
      const found = [];
      let whole = 0;
      for (let kind = 0; kind < kinds; kind++) {
        const us = sums[column * kinds + kind];
        if (us) { found.push([kind, us]); whole += us; }
      }
      stack(found, whole, column, column + 1, top, height);
    }
  }

  // Kinds that share a colour are told apart by lines that rise or fall.
  function hatch(number) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const lines = tile.getContext("2d");
    lines.strokeStyle = paints.panel;
    lines.globalAlpha = 0.55;
    lines.lineWidth = 1.5;
    lines.beginPath();
    for (const shift of [-8, 0, 8]) {
      lines.moveTo(shift, number === 1 ? 8 : 0);
      lines.lineTo(shift + 8, number === 1 ? 0 : 8);
    }
    lines.stroke();
    return pen.createPattern(tile, "repeat");
  }

  // On a pixel's edge, so that no seam shows between neighbours.
  const snapped = (x) => Math.round(x * ratio) / ratio;

  function stack(kinds, whole, x0, x1, top, height) {
    let bottom = top + height;
    const rest = [];
    for (const pair of kinds) {
      if (data.kinds[pair[0]].level !== "productive") { rest.push(pair); continue; }
      const share = (height * pair[1]) / whole;
      pen.fillStyle = data.kinds[pair[0]].colour;
      pen.fillRect(x0, bottom - share, x1 - x0, share);
      bottom -= share;
    }
    for (const [kind, us] of rest) {
      const share = Math.max(1, (height * us) / whole);
      const begin = Math.max(top, bottom - share);
      pen.fillStyle = data.kinds[kind].colour;
      pen.fillRect(x0, begin, x1 - x0, share);
      if (data.kinds[kind].hatch && x1 - x0 > 5) {
        pen.fillStyle = hatch(data.kinds[kind].hatch);
        pen.fillRect(x0, begin, x1 - x0, share);
      }
      bottom -= share;
    }
  }

  // Steps of a row that are wide enough get their bounds: they are taken as equally long.
  function rows(i, x0, x1, top, height, width) {
    const n = data.n[i];
    const each = (x1 - x0) / Math.max(1, n);
    if (data.k[i] < 0 || each < 8) return;
    pen.fillStyle = paints.panel;
    const first = Math.max(0, Math.floor(-x0 / each));
    for (let k = first; k <= n && x0 + k * each < width; k++) pen.fillRect(Math.round(x0 + k * each), top, 1, height);
  }

  const NICE_S = [1e-6, 1e-5, 1e-4, 0.001, 0.005, 0.02, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 86400, 2 * 86400, 7 * 86400, 14 * 86400, 28 * 86400, 91 * 86400, 364 * 86400];

  function axis(width, top) {
    const span = view[1] - view[0];
    const label = (us) => moment(us, span);
    pen.font = "12px system-ui, sans-serif";
    const room = pen.measureText(label(view[0])).width + 26;
    const step = 1e6 * (NICE_S.find((s) => (s * 1e6 * width) / span >= room) || NICE_S[NICE_S.length - 1]);
    const offset = data.unix_ms === null ? 0 : (data.unix_ms * 1000) % step;
    pen.textBaseline = "top";
    let free = 0;
    for (let us = Math.ceil((view[0] + offset) / step) * step - offset; us <= view[1]; us += step) {
      const x = ((us - view[0]) * width) / span;
      pen.fillStyle = paints.line;
      pen.fillRect(Math.round(x), top, 1, 5);
      const text = label(Math.max(0, us));
      const w = pen.measureText(text).width;
      const left = clamp(x - w / 2, 0, width - w);
      if (left < free) continue;
      pen.fillStyle = paints.soft;
      pen.fillText(text, left, top + 7);
      free = left + w + 8;
    }
  }

  // Attempts as bars with their numbers, and above the strip what happened at a moment.
  function events(width) {
    const span = view[1] - view[0];
    const x = (us) => ((us - view[0]) * width) / span;
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    let free = -1;
    for (const one of data.launches) {
      const x0 = Math.max(0, x(one.start)), x1 = Math.min(width, x(one.end === null ? data.end : one.end));
      if (x1 < 0 || x0 > width || x1 - x0 < 0.5) continue;
      pen.fillStyle = one.attempt % 2 ? paints.line : paints.grid;
      pen.fillRect(x0, 2, Math.max(1, x1 - x0 - 1), TOP - 6);
      const text = x1 - x0 > 90 ? `attempt ${one.attempt}` : String(one.attempt);
      const w = pen.measureText(text).width;
      if (x1 - x0 < w + 8 || x0 < free) continue;
      pen.fillStyle = paints.soft;
      pen.fillText(text, x0 + 5, TOP / 2);
      free = x0 + w + 10;
    }
    const base = TOP + EVENTS - 2;
    const columns = new Set();
    pen.fillStyle = paints.soft;
    for (const [us] of data.saves) {
      const column = Math.round(x(us));
      if (column < 0 || column > width || columns.has(column)) continue;
      columns.add(column);
      pen.fillRect(column, base - 6, 1, 6);
    }
    pen.fillStyle = paints.ink;
    const inView = data.incidents.filter(([us]) => us >= view[0] && us <= view[1]);
    const crowded = 12 * inView.length > width; // then ticks, not crosses
    for (const [us] of inView) if (crowded) pen.fillRect(Math.round(x(us)), base - 9, 1, 6);
    for (const [us] of crowded ? [] : inView) mark(x(us), base, width, (cx) => { pen.moveTo(cx - 4, base - 10); pen.lineTo(cx + 4, base - 2); pen.moveTo(cx + 4, base - 10); pen.lineTo(cx - 4, base - 2); });
    for (const one of data.notices) {
      const cx = x(one.at);
      if (cx < -6 || cx > width + 6) continue;
      pen.fillStyle = paints.warning;
      pen.beginPath();
      pen.moveTo(cx - 5, TOP);
      pen.lineTo(cx + 5, TOP);
      pen.lineTo(cx, TOP + 9);
      pen.fill();
    }
  }

  function mark(cx, base, width, path) {
    if (cx < -6 || cx > width + 6) return;
    pen.strokeStyle = paints.ink;
    pen.lineWidth = 1.5;
    pen.beginPath();
    path(cx);
    pen.stroke();
  }

  function draw() {
    wanted = 0;
    const width = Math.floor(place.clientWidth);
    if (!width) return;
    ratio = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(HEIGHT * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(HEIGHT * ratio);
      canvas.style.height = `${HEIGHT}px`;
    }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, HEIGHT);
    colours();
    const top = TOP + EVENTS, bottom = top + STRIP;
    pen.fillStyle = paints.grid;
    pen.fillRect(0, top, width, STRIP);
    if (data.d.length) strip(view[0], view[1], top, STRIP, width);
    events(width);
    axis(width, bottom + 1);
    const overview = bottom + AXIS + GAP;
    const whole = Math.max(data.end, 1);
    if (data.d.length) strip(0, whole, overview, WHOLE, width);
    pen.strokeStyle = paints.ink;
    pen.lineWidth = 2;
    const x0 = (view[0] * width) / whole, x1 = (view[1] * width) / whole;
    pen.strokeRect(clamp(x0, 1, width - 3), overview - 1, clamp(x1 - x0, 3, width - 2), WHOLE + 2);
    if (at !== undefined) {
      pen.fillStyle = paints.ink;
      pen.fillRect(((at - view[0]) * width) / (view[1] - view[0]), top, 1, STRIP);
    }
    tell();
    place.dataset.drawn = `${view[0]},${view[1]}`;
  }

  function redraw() {
    if (!wanted) wanted = requestAnimationFrame(draw);
  }

  // --- Moving -------------------------------------------------------------------------------

  function show(from, to) {
    const whole = Math.max(data.end, LEAST_US);
    const span = clamp(to - from, LEAST_US, whole);
    const begin = clamp(from, 0, whole - span);
    view = [begin, begin + span];
    redraw();
  }

  function zoom(factor, around) {
    const span = (view[1] - view[0]) * factor;
    const share = (around - view[0]) / (view[1] - view[0]);
    show(around - share * span, around - share * span + span);
  }

  const middle = () => (view[0] + view[1]) / 2;

  // The stretch around a disruption: from a little before the end to the step after it.
  function showIncident(us) {
    const next = data.incidents.map(([when]) => when).find((when) => when > us) || data.end;
    let until = us;
    for (let i = pieceAt(us); i < data.d.length && start[i] < next; i++) {
      until = start[i + 1];
      if (data.n[i]) break;
    }
    const span = Math.max(until - us, 1000);
    at = us;
    show(us - 0.5 * span, until + 0.5 * span);
  }

  function step(direction) {
    const times = data.incidents.map(([when]) => when);
    const here = at !== undefined && at >= view[0] && at <= view[1] ? at : middle();
    const found = direction > 0 ? times.find((when) => when > here) : times.reverse().find((when) => when < here);
    if (found !== undefined) showIncident(found);
  }

  const actions = {
    all: () => show(0, data.end),
    in: () => zoom(0.5, at === undefined ? middle() : clamp(at, ...view)),
    out: () => zoom(2, middle()),
    left: () => show(view[0] - 0.25 * (view[1] - view[0]), view[1] - 0.25 * (view[1] - view[0])),
    right: () => show(view[0] + 0.25 * (view[1] - view[0]), view[1] + 0.25 * (view[1] - view[0])),
    before: () => step(-1),
    after: () => step(1),
  };
  const KEYS = { 0: "all", "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", n: "after", p: "before", N: "after", P: "before" };

  document.querySelectorAll("#course-live [data-do]").forEach((button) => button.addEventListener("click", () => actions[button.dataset.do]()));
  place.addEventListener("keydown", (event) => {
    const name = KEYS[event.key];
    if (!name || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions[name]();
    // Who has no pointer is told what lies in the middle, or at the disruption that N and P found.
    if (event.key.startsWith("Arrow") || at === undefined || at < view[0] || at > view[1]) at = middle();
    redraw();
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-show]");
    if (!button) return;
    showIncident(Number(button.dataset.show));
    document.getElementById("timeline").scrollIntoView({ block: "start" });
    place.focus({ preventScroll: true });
  });

  const timeAt = (event) => {
    const box = canvas.getBoundingClientRect();
    return view[0] + ((event.clientX - box.left) / box.width) * (view[1] - view[0]);
  };
  const inWhole = (event) => event.clientY - canvas.getBoundingClientRect().top > TOP + EVENTS + STRIP + AXIS;
  const fingers = new Map();
  place.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    fingers.set(event.pointerId, { x: event.clientX, whole: inWhole(event) });
    place.setPointerCapture(event.pointerId);
    if (inWhole(event)) jump(event);
    else { at = timeAt(event); redraw(); } // a finger that only touches tells, too
  });
  function jump(event) {
    const box = canvas.getBoundingClientRect();
    const us = ((event.clientX - box.left) / box.width) * data.end;
    const half = (view[1] - view[0]) / 2;
    show(us - half, us + half);
  }
  place.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (before && before.whole) { jump(event); return; }
    if (before && fingers.size === 2) {
      const other = [...fingers.entries()].find(([id]) => id !== event.pointerId)[1];
      const old = Math.abs(before.x - other.x), now = Math.abs(event.clientX - other.x);
      if (old > 8 && now > 8) zoom(old / now, timeAt({ clientX: (event.clientX + other.x) / 2 }));
    } else if (before) {
      const moved = ((before.x - event.clientX) * (view[1] - view[0])) / canvas.clientWidth;
      show(view[0] + moved, view[1] + moved);
    }
    if (before) before.x = event.clientX;
    if (!inWhole(event)) { at = timeAt(event); redraw(); }
  });
  for (const name of ["pointerup", "pointercancel"]) place.addEventListener(name, (event) => fingers.delete(event.pointerId));
  place.addEventListener("wheel", (event) => {
    if (document.activeElement !== place && !event.ctrlKey) return;
    event.preventDefault();
    zoom(Math.pow(1.002, event.deltaY), timeAt(event));
  }, { passive: false });
  place.addEventListener("dblclick", (event) => zoom(0.125, timeAt(event)));

  new ResizeObserver(redraw).observe(place);
  dark.addEventListener("change", redraw);
  window.matchMedia("print").addEventListener("change", draw); // now: a print waits for no frame
  document.addEventListener("holdfast:course", (event) => load(event.detail));

  still.hidden = true;
  document.getElementById("course-live").hidden = false;
  document.documentElement.dataset.course = ""; // from now on, what leads here may be pressed
  load(JSON.parse(document.getElementById("course").textContent));
})();
