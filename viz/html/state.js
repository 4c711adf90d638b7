// The page's state. What a link should bring back stands in the URL's hash.
const $ = (id) => document.getElementById(id);

function element(tag, words = "", kind = "") {
  const made = document.createElement(tag);
  made.textContent = words;
  made.className = kind;
  return made;
}

const AXES = ["steps", "time"], THEMES = ["auto", "light", "dark"], TABLES = ["cursor", "peak", "pin"];
const hasTime = events.end.some((end) => end > 0); // a plan knows how long a step takes, but not when what runs

const state = {
  axis: data.axis,
  from: 0, // of the axis: what lies at the left edge, and at the right one
  to: 1,
  low: 0, // of the addresses: parts of their whole, 0 .. 1
  high: 1,
  cursor: null, // {event, range or -1, panel, x, y}; x and y in pixels of the stage, or null from the keyboard
  seen: -1, // the event under the cursor, and after it went
  pin: null, // {event, range or -1}
  box: null, // {x0, x1, y0, y1} in pixels: what a drag with Shift has framed
  find: "",
  theme: "auto",
  table: "peak",
  sort: { key: "bytes", down: true },
};

const positions = (trace = base) => (state.axis === "time" ? trace.time : trace.steps);
const wholeAxis = () => Math.max(1, ...traces.map((trace) => positions(trace)[trace.count]));
const axisBegin = () => Math.min(...traces.map((trace) => positions(trace)[0]));
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

// The first event that begins at or after this place of the axis, or only after it; count: none.
function firstFrom(place, trace = base, after = false) {
  const at = positions(trace);
  let low = 0, high = trace.count;
  while (low < high) {
    const middle = (low + high) >> 1;
    at[middle] < place || (after && at[middle] === place) ? (low = middle + 1) : (high = middle);
  }
  return low;
}

// The last event that has begun there.
const eventAt = (place, trace = base) => clamp(firstFrom(place, trace, true) - 1, 0, trace.count - 1);

function zoomTo(from, to) {
  const begin = axisBegin(), end = wholeAxis(), whole = end - begin;
  // Places late on a clock are coarse numbers: their picture must stay some thousands of them wide.
  const least = Math.max(state.axis === "time" ? 10 : 2, end * Math.pow(2, -40));
  const length = clamp(to - from, Math.min(whole, least), whole);
  const start = clamp((from + to - length) / 2, begin, begin + whole - length);
  state.from = start;
  state.to = start + length;
}

function zoomAddresses(low, high) {
  const length = clamp(high - low, 1e-6, 1);
  state.low = clamp((low + high - length) / 2, 0, 1 - length);
  state.high = state.low + length;
}

function showAll() {
  zoomTo(axisBegin(), wholeAxis());
  zoomAddresses(0, 1);
}

// The same events stay in the picture when the axis changes.
function setAxis(axis) {
  const first = eventAt(state.from), last = eventAt(state.to);
  const all = state.to - state.from >= wholeAxis() - axisBegin();
  state.axis = axis === "time" && !hasTime ? "steps" : axis;
  all ? zoomTo(axisBegin(), wholeAxis()) : zoomTo(positions()[first], positions()[last + 1]);
}

const systemDark = matchMedia("(prefers-color-scheme: dark)");
const dark = () => state.theme === "dark" || (state.theme === "auto" && systemDark.matches);
const colors = {};

// The canvas takes its colours from the style sheet; greys that would vanish on black get lighter.
function readColors(forceLight = false) {
  const night = dark() && !forceLight;
  document.documentElement.dataset.look = night ? "dark" : "light";
  const style = getComputedStyle(document.documentElement);
  for (const name of ["paper", "panel", "text", "quiet", "faint", "line", "mark", "hit"]) {
    colors[name] = style.getPropertyValue("--" + name).trim();
  }
  colors.night = night;
}

let known = ""; // the hash as it was read or written last
let hashTimer = 0;

// Browsers bear some hundred changes in half a minute; a drag has that many in seconds.
function keepHash() {
  clearTimeout(hashTimer);
  hashTimer = setTimeout(writeHash, 150);
}

function writeHash() {
  const part = new URLSearchParams();
  const whole = wholeAxis() - axisBegin();
  const digits = (value) => String(Number(value.toPrecision(9)));
  if (state.axis !== data.axis) {
    part.set("axis", state.axis);
  }
  if (state.to - state.from < whole * (1 - 1e-9)) {
    part.set("x", digits(state.from) + "~" + digits(state.to));
  }
  if (state.high - state.low < 1 - 1e-9) {
    part.set("y", digits(state.low) + "~" + digits(state.high));
  }
  if (state.pin) {
    part.set("pin", state.pin.range >= 0 ? `${state.pin.event}.${state.pin.range}` : String(state.pin.event));
  }
  for (const [key, plain] of [["find", ""], ["theme", "auto"], ["table", "peak"]]) {
    if (state[key] !== plain) {
      part.set(key, state[key]);
    }
  }
  const hash = "#" + part.toString();
  // If somebody else changed the hash, restore() is about to read it.
  if (location.hash === known && hash !== known && !(hash === "#" && known === "")) {
    try {
      history.replaceState(null, "", hash);
      known = location.hash;
    } catch { // a page inside another one may have no say in its address: it has no link then
    }
  }
}

const pair = (text) => (/^-?[\d.e+-]+~-?[\d.e+-]+$/i.test(text || "") ? text.split("~").map(Number) : null);

// A hash may hold anything: values out of range or unknown are ignored.
function readHash() {
  known = location.hash;
  const part = new URLSearchParams(known.slice(1));
  const one = (key, list, plain) => (list.includes(part.get(key)) ? part.get(key) : plain);
  state.axis = one("axis", AXES, data.axis);
  state.axis = hasTime ? state.axis : "steps";
  state.theme = one("theme", THEMES, "auto");
  state.table = one("table", TABLES, "peak");
  state.find = part.get("find") || "";
  showAll();
  const x = pair(part.get("x")), y = pair(part.get("y"));
  if (x && x[0] < x[1] && x.every(Number.isFinite)) {
    zoomTo(x[0], x[1]);
  }
  if (y && y[0] < y[1] && y.every(Number.isFinite)) {
    zoomAddresses(y[0], y[1]);
  }
  const pin = /^(\d+)(?:\.(\d+))?$/.exec(part.get("pin") || "");
  const event = pin ? Number(pin[1]) : base.count, range = pin && pin[2] !== undefined ? Number(pin[2]) : -1;
  const alive = range === -1 || (range < ranges.count && ranges.from[range] <= event && event <= ranges.to[range]);
  state.pin = event < base.count && alive ? { event, range } : null;
}
