// Drawing, and what the mouse, keys, fingers and buttons do.
let wanted = false, redrawMs = 0, stageWidth = 0, screenRatio = 1;
const pointers = new Map(), gesture = { moved: false, boxed: false, x: 0, y: 0 };

function draw() {
  const start = performance.now(), context = plot.getContext("2d");
  drawn.ticks = [];
  drawn.levels = [];
  drawn.peak = null;
  context.fillStyle = colors.paper;
  context.fillRect(0, 0, layout.width, layout.height);
  drawMap(context);
  drawChart(context);
  drawResiduals(context);
  drawLanes(context);
  drawTicks(context);
  if (state.cursor && state.cursor.x !== null) { // something else lies under the pointer now
    setCursor(spotAt(state.cursor.x, state.cursor.y));
  }
  drawOver();
  redrawMs = performance.now() - start;
}

function sayWhere() {
  const { from, to } = state, first = Math.floor(from), last = Math.max(first, Math.ceil(to) - 1);
  const steps = `${data.unit}s ${grouped(first)} to ${grouped(last)}`;
  const range = state.axis === "time" ? `${nsText(from)} to ${nsText(to)}` : steps;
  const spot = state.cursor || state.pin;
  $("where").textContent = range + (spot ? ` · ${state.cursor ? "" : "pinned: "}${describe(spot)}` : "");
}

function refreshNow() {
  wanted = false;
  draw();
  placeTip();
  fillTable();
  fillLegend();
  sayWhere();
  $("axis-steps").textContent = `${data.unit}s`;
  for (const axis of AXES) {
    $("axis-" + axis).setAttribute("aria-pressed", String(state.axis === axis));
  }
  $("unpin").hidden = !state.pin;
  $("theme").textContent = `colours: ${state.theme}`;
  keepHash();
}

function refresh() {
  if (!wanted) {
    wanted = true;
    requestAnimationFrame(refreshNow);
  }
}

// Only what lies over the picture changes while the pointer moves.
let overWanted = false;
function refreshOver() {
  if (!wanted && !overWanted) {
    overWanted = true;
    requestAnimationFrame(() => {
      overWanted = false;
      if (screenRatio !== devicePixelRatio) { // on another screen; the window may have kept its size
        resize();
        return;
      }
      drawOver();
      placeTip();
      fillTable(true);
      fillLegend();
      sayWhere();
    });
  }
}

function resize() {
  screenRatio = devicePixelRatio;
  patterns.clear();
  table.key = "";
  stageWidth = $("stage").clientWidth;
  layOut(stageWidth);
  buildLegend();
  refresh();
}

function setTheme(theme) {
  state.theme = theme;
  readColors();
  resize();
}

function setCursor(spot) {
  state.cursor = spot;
  state.seen = spot ? spot.event : state.seen;
}

// The table follows a pin, unless it follows the cursor.
function pin(spot) {
  state.pin = { event: spot.event, range: spot.range };
  state.table = state.table === "peak" ? "pin" : state.table;
  say("pinned " + describe(spot));
  refresh();
}

function unpin() {
  state.pin = null;
  state.table = state.table === "pin" ? "peak" : state.table;
  say("unpinned");
  refresh();
}

// From the table or the list of matches.
function pointAt(range) {
  if (range >= 0) {
    const event = clamp(tableEvent(), ranges.from[range], ranges.to[range]);
    state.cursor = { event, range, quiet: true, x: null, y: null };
    refreshOver();
  }
}

function letGo() {
  if (state.cursor) {
    state.cursor = null;
    refreshOver();
  }
}

function revealEvent(event) {
  const at = positions(), middle = (at[event] + at[event + 1]) / 2, half = (state.to - state.from) / 2;
  if (middle < state.from || middle > state.to) {
    zoomTo(middle - half, middle + half);
  }
  refresh();
}

function reveal(range) {
  const at = positions(), from = at[ranges.from[range]], to = at[ranges.to[range] + 1];
  if (to < state.from || from > state.to) {
    const length = Math.max(state.to - state.from, (to - from) * 1.2);
    zoomTo((from + to - length) / 2, (from + to + length) / 2);
  }
  const low = ranges.offset[range] / ranges.top, high = (ranges.offset[range] + ranges.bytes[range]) / ranges.top;
  if (high < state.low || low > state.high) {
    const half = (state.high - state.low) / 2;
    zoomAddresses((low + high) / 2 - half, (low + high) / 2 + half);
  }
  refresh();
}

// Zoom by a factor around a place that stays where it is.
function zoomAround(factor, place) {
  zoomTo(place - (place - state.from) * factor, place + (state.to - place) * factor);
  refresh();
}

function zoomAddressesAround(factor, part) {
  zoomAddresses(part - (part - state.low) * factor, part + (state.high - part) * factor);
  refresh();
}

const middle = () =>
  state.cursor ? clamp(positions()[state.cursor.event], state.from, state.to) : (state.from + state.to) / 2;

function pan(parts) {
  const by = (state.to - state.from) * parts;
  zoomTo(state.from + by, state.to + by);
  refresh();
}

function panAddresses(parts) {
  const by = (state.high - state.low) * parts;
  zoomAddresses(state.low + by, state.high + by);
  refresh();
}

function panelAt(y) {
  const within = (panel) => panel && y >= panel.top && y < panel.bottom;
  return within(layout.map) ? "map" : within(layout.lanes) ? "lanes" : "chart";
}

// The event of a lane under the pointer is what ran there, on either axis.
function laneEvent(x, y) {
  const lane = Math.floor((y - layout.lanes.top) / LANE), place = placeAt(x), slack = placeAt(x + 1.5) - place;
  const time = state.axis === "time", at = positions();
  let best = -1, distance = Infinity;
  for (let i = 0; i < base.count; i++) {
    if (events.lane[i] === lane) {
      const from = time ? events.start[i] : at[i], to = time ? events.end[i] : at[i] + 1;
      const far = place < from ? from - place : place > to ? place - to : 0;
      if (far < distance && far <= slack) {
        best = i;
        distance = far;
      }
    }
  }
  return best;
}

function spotAt(x, y) {
  if (x < layout.left || x > layout.right || y < 0 || y > layout.axisY) {
    return null;
  }
  const panel = panelAt(y), range = panel === "map" ? rangeAt(x, y) : -1;
  const ran = panel === "lanes" ? laneEvent(x, y) : -1;
  const event = ran >= 0 ? ran : eventAt(placeAt(x));
  return { event: range >= 0 ? clamp(event, ranges.from[range], ranges.to[range]) : event, range, panel, x, y };
}

function spotOf(event) {
  const stage = plot.getBoundingClientRect();
  return spotAt(event.clientX - stage.left, event.clientY - stage.top);
}

function onPointerDown(event) {
  if (event.button !== 0) { // a menu may swallow the end of it
    return;
  }
  pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
  gesture.moved = pointers.size > 1;
  gesture.boxed = event.shiftKey && event.pointerType === "mouse";
  gesture.x = event.clientX;
  gesture.y = event.clientY;
  plot.setPointerCapture(event.pointerId);
}

const spread = () => {
  const [a, b] = [...pointers.values()];
  return { middle: (a.x + b.x) / 2, length: Math.max(8, Math.abs(a.x - b.x)) };
};

// The part of the picture between where a drag began and where it is: of the map when it began there and has a height,
// else all of it from left to right.
function boxTo(event) {
  const stage = plot.getBoundingClientRect(), { map, left, right, axisY } = layout;
  const ends = (a, b, low, high) => [Math.min(a, b), Math.max(a, b)].map((one) => clamp(one, low, high));
  const [x0, x1] = ends(gesture.x - stage.left, event.clientX - stage.left, left, right);
  const inMap = map && panelAt(gesture.y - stage.top) === "map" && Math.abs(event.clientY - gesture.y) > 8;
  const [y0, y1] = inMap ? ends(gesture.y - stage.top, event.clientY - stage.top, map.top, map.bottom) : [0, axisY];
  return { x0, x1, y0, y1, inMap };
}

function zoomToBox({ x0, x1, y0, y1, inMap }) {
  const low = inMap && offsetAt(y1) / ranges.top, high = inMap && offsetAt(y0) / ranges.top;
  if (x1 > x0) {
    zoomTo(placeAt(x0), placeAt(x1));
    inMap && zoomAddresses(low, high);
  }
}

function onPointerMove(event) {
  const last = pointers.get(event.pointerId), stage = plot.getBoundingClientRect();
  if (!last) {
    setCursor(spotOf(event));
    refreshOver();
    return;
  }
  const before = pointers.size === 2 ? spread() : null, here = { x: event.clientX, y: event.clientY };
  pointers.set(event.pointerId, here);
  gesture.moved = gesture.moved || Math.hypot(here.x - gesture.x, here.y - gesture.y) > 4;
  if (!gesture.moved) {
    return;
  }
  const perPixel = (state.to - state.from) / (layout.right - layout.left);
  state.cursor = null;
  if (gesture.boxed) {
    state.box = boxTo(event);
    refreshOver();
    return;
  }
  if (before) {
    const after = spread(), place = placeAt(before.middle - stage.left);
    const length = (state.to - state.from) * (before.length / after.length);
    const part = (after.middle - stage.left - layout.left) / (layout.right - layout.left);
    zoomTo(place - part * length, place + (1 - part) * length);
  } else {
    plot.classList.add("held");
    zoomTo(state.from - (here.x - last.x) * perPixel, state.to - (here.x - last.x) * perPixel);
    if (layout.map && state.high - state.low < 1 && event.pointerType === "mouse") {
      const by = ((here.y - last.y) / layout.map.height) * (state.high - state.low);
      zoomAddresses(state.low + by, state.high + by);
    }
  }
  refresh();
}

function onPointerUp(event) {
  const known = pointers.delete(event.pointerId), { box } = state;
  plot.classList.remove("held");
  if (box) {
    state.box = null;
    if (event.type === "pointerup") {
      zoomToBox(box);
    }
    refresh();
    return;
  }
  if (!known || gesture.moved || event.type !== "pointerup") {
    return;
  }
  const spot = spotOf(event);
  setCursor(spot);
  const same = spot && state.pin && state.pin.event === spot.event && state.pin.range === spot.range;
  spot && !same ? pin(spot) : unpin();
}

function onWheel(event) {
  event.preventDefault();
  const stage = plot.getBoundingClientRect(), x = clamp(event.clientX - stage.left, layout.left, layout.right);
  const lines = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 100 : 1;
  const dx = event.deltaX * lines, dy = event.deltaY * lines;
  if (event.shiftKey && layout.map) {
    const part = offsetAt(event.clientY - stage.top) / ranges.top;
    zoomAddressesAround(Math.exp(clamp((dy || dx) * 0.002, -1, 1)), clamp(part, state.low, state.high));
  } else if (Math.abs(dx) > Math.abs(dy)) {
    pan(dx / (layout.right - layout.left));
  } else {
    zoomAround(Math.exp(clamp(dy * 0.002, -1, 1)), placeAt(x));
  }
}

function goToEvent(event) {
  setCursor({ event, range: -1, panel: "chart", x: null, y: null });
  revealEvent(event);
  say(describe(state.cursor));
}

const goToPeak = () => goToEvent(data.peak);
const goToNext = () => goTo(search.at + 1);
const goToPrevious = () => goTo(search.at < 0 ? -1 : search.at - 1);

function moveCursor(by) {
  const now = state.cursor || state.pin, first = eventAt(state.from);
  goToEvent(clamp(now ? now.event + by : first, 0, base.count - 1));
}

const keys = {
  ArrowLeft: () => pan(-0.1),
  ArrowRight: () => pan(0.1),
  ArrowUp: () => panAddresses(0.1),
  ArrowDown: () => panAddresses(-0.1),
  "+": () => zoomAround(1 / 1.5, middle()),
  "=": () => zoomAround(1 / 1.5, middle()),
  "-": () => zoomAround(1.5, middle()),
  "*": () => zoomAddressesAround(1 / 1.5, (state.low + state.high) / 2),
  _: () => zoomAddressesAround(1.5, (state.low + state.high) / 2),
  Home: () => pan(-1e9),
  End: () => pan(1e9),
  ",": () => moveCursor(-1),
  ".": () => moveCursor(1),
  p: goToPeak,
  n: goToNext,
  N: goToPrevious,
  0: () => {
    showAll();
    refresh();
  },
  Enter: () => state.cursor && pin(state.cursor),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  const typing = event.target === $("find");
  if (event.key === "Escape") {
    if (typing) {
      plot.focus();
    } else {
      letGo();
      state.pin && unpin();
    }
    return;
  }
  if (typing) {
    if (event.key === "Enter") {
      event.preventDefault();
      goTo(event.shiftKey ? search.at - 1 : search.at + 1);
    }
    return;
  }
  if (event.key === "/") {
    event.preventDefault();
    $("find").focus();
    $("find").select();
    return;
  }
  // Letters and signs work everywhere; what also scrolls the page or presses buttons only on the picture.
  const everywhere = "nNp,.+=-*_0".includes(event.key);
  if (keys[event.key] && (everywhere || event.target === plot)) {
    event.preventDefault();
    keys[event.key]();
  }
}

function restore() {
  readHash();
  readColors();
  find();
  resize();
}

function listen() {
  plot.addEventListener("pointerdown", onPointerDown);
  plot.addEventListener("pointermove", onPointerMove);
  plot.addEventListener("pointerup", onPointerUp);
  plot.addEventListener("pointercancel", onPointerUp);
  plot.addEventListener("lostpointercapture", onPointerUp); // whatever else ends a drag
  plot.addEventListener("pointerleave", (event) => {
    if (!pointers.has(event.pointerId) && event.pointerType !== "touch") {
      letGo();
    }
  });
  plot.addEventListener("wheel", onWheel, { passive: false });
  document.addEventListener("keydown", onKey);
  for (const axis of AXES) {
    $("axis-" + axis).addEventListener("click", () => {
      setAxis(axis);
      refresh();
    });
  }
  $("axis-time").disabled = !hasTime;
  $("zoom-in").addEventListener("click", () => zoomAround(1 / 1.5, middle()));
  $("zoom-out").addEventListener("click", () => zoomAround(1.5, middle()));
  $("zoom-all").addEventListener("click", () => keys[0]());
  $("go-peak").addEventListener("click", goToPeak);
  $("unpin").addEventListener("click", unpin);
  $("theme").addEventListener("click", () => setTheme(THEMES[(THEMES.indexOf(state.theme) + 1) % THEMES.length]));
  $("help").addEventListener("click", () => {
    $("keys").hidden = !$("keys").hidden;
    $("help").setAttribute("aria-expanded", String(!$("keys").hidden));
  });
  $("find").addEventListener("input", () => {
    state.find = $("find").value;
    find();
    refresh();
  });
  $("find-next").addEventListener("click", goToNext);
  $("find-back").addEventListener("click", goToPrevious);
  addEventListener("hashchange", restore);
  addEventListener("resize", resize);
  new ResizeObserver(() => $("stage").clientWidth !== stageWidth && resize()).observe($("stage")); // a scroll bar
  addEventListener("scroll", () => { // the words would stay where nothing is any more
    if (state.cursor && state.cursor.x !== null) {
      letGo();
    }
  });
  systemDark.addEventListener("change", () => setTheme(state.theme));
  const paper = (light) => {
    readColors(light);
    patterns.clear();
    table.key = "";
    buildLegend();
    refreshNow();
  };
  addEventListener("beforeprint", () => paper(true));
  addEventListener("afterprint", () => paper(false));
}

// For tests and the curious: the state, where things lie in the picture, and what the last redraw took.
window.ckpt = {
  state, layout, drawn, search, data, ranges, events, rectOf, plotX, colors, tint, textOn,
  highest: (from, to) => highest(base.planned, base.highest, from, to),
  get redrawMs() { return redrawMs; },
  get busy() { return wanted || overWanted; },
  measure() { draw(); return redrawMs; },
};
plot.setAttribute("aria-label", `${show(data.title, 200)}. ${show(data.head.join(". "), 300)}. ` +
  "Use the arrow keys to move, plus and minus to zoom, comma and full stop to go from step to step.");
buildTable();
buildFacts();
listen();
restore();
