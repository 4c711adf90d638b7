// What lies over the picture: the cursor's line, the pin, matches, outlines of the live range under the pointer and of
// its layer's others, and the words about it.
const tip = $("tip");

function outline(context, range, color, width) {
  const { map, left, right } = layout, rect = rectOf(range);
  const x0 = Math.max(rect.left, left - 2), x1 = Math.min(rect.right, right + 2);
  const y0 = Math.max(rect.top, map.top - 2), y1 = Math.min(rect.bottom, map.bottom + 2);
  if (x1 < left || x0 > right || y1 < map.top || y0 > map.bottom) {
    return;
  }
  strokeFrame(context, x0, y0, Math.max(1, x1 - x0), Math.max(1, y1 - y0), color, width);
}

const kinOf = (range) => (range >= 0 && ranges.ofLayer.get(ranges.layer[range])) || [];

function crosshair(context, event, dash) {
  const x = middleX(event);
  if (x >= layout.left && x <= layout.right) {
    strokeLine(context, x, 0, x, layout.axisY, colors.text, 1, dash);
  }
}

// The time a live range lasts, over chart and lanes.
function shade(context, range) {
  const rect = rectOf(range), { left, right } = layout;
  const x0 = clamp(rect.left, left, right), x1 = clamp(rect.right, left, right);
  wash(context, x0, layout.chart.top, Math.max(1, x1 - x0), layout.axisY - layout.chart.top, colors.text, 0.1);
}

function drawOver() {
  const context = over.getContext("2d");
  context.clearRect(0, 0, layout.width, layout.height);
  if (layout.map) {
    const pointed = [state.pin, state.cursor].filter((spot) => spot && spot.range >= 0).map((spot) => spot.range);
    clipTo(context, layout.map, () => {
      if (search.ranges.length <= 2000) {
        search.ranges.forEach((range) => outline(context, range, colors.hit, 1.2));
      }
      for (const range of pointed) {
        kinOf(range).slice(0, 2000).forEach((one) => outline(context, one, colors.text, 1.2));
        outline(context, range, colors.paper, 5);
        outline(context, range, colors.hit, 2.6);
      }
    });
    pointed.forEach((range) => shade(context, range));
  }
  if (state.box) {
    const { x0, x1, y0, y1 } = state.box;
    wash(context, x0, y0, x1 - x0, y1 - y0, colors.hit, 0.15);
    strokeFrame(context, x0, y0, x1 - x0, y1 - y0, colors.hit, 1.2);
  }
  if (state.pin) {
    crosshair(context, state.pin.event, []);
  }
  if (state.cursor) {
    crosshair(context, state.cursor.event, [3, 3]);
  }
}

const eventText = (event) => (event < 0 ? "unknown" : `${stepText(event)}, ${show(nameOf(event), 120)}`);
const whenText = (event) => (hasTime && event >= 0 ? `, ${nsText(base.time[event])}` : "");

function rangeRows(range) {
  const layer = data.texts[ranges.layer[range]];
  const death = ranges.to[range];
  const born = ranges.born[range] >= 0 ? ranges.born[range] : ranges.from[range];
  return [
    ["layer", layer === "" ? "none" : show(layer)],
    ["kind", data.kinds[ranges.kind[range]].name],
    ["bytes", `${grouped(ranges.bytes[range])} (${bytesText(ranges.bytes[range])})`],
    [data.noPlan ? "address" : "offset", addressOf(range)],
    ["birth", eventText(born) + whenText(born)],
    ["death", isFreed(range) ? `after ${eventText(death)}${whenText(death + 1)}` : "not before the end"],
    ["why", show(reasonOf(range))],
  ];
}

function eventRows(event, panel) {
  const rows = [];
  const layer = data.texts[events.layer[event]];
  if (layer !== "") {
    rows.push(["layer", show(layer)]);
  }
  rows.push(["phase", data.spans[events.span[event]].name]);
  if (hasTime) {
    rows.push(["time", `${nsText(events.start[event])}, for ${nsText(events.end[event] - events.start[event])}`]);
  }
  if (panel !== "lanes") {
    for (let b = bands.length - 1; b >= 0; b--) {
      if (bands[b].bytes[event] > 0) {
        rows.push([bands[b].name, `${grouped(bands[b].bytes[event])} (${bytesText(bands[b].bytes[event])})`]);
      }
    }
    rows.push(["sum", `${grouped(base.planned[event])} (${bytesText(base.planned[event])})`]);
    for (const other of others) {
      const more = other.residual[event];
      const words = more === 0 ? "the same" : `${grouped(Math.abs(more))} B ${more > 0 ? "more" : "less"}`;
      rows.push([show(other.label, 40), words]);
    }
  }
  return rows;
}

function fillTip(cursor) {
  const { range, event } = cursor, list = document.createElement("dl");
  const head = range >= 0 ? show(data.texts[ranges.name[range]]) : `${stepText(event)}: ${show(nameOf(event))}`;
  for (const [name, words] of range >= 0 ? rangeRows(range) : eventRows(event, cursor.panel)) {
    list.append(element("dt", name), element("dd", words));
  }
  tip.replaceChildren(element("strong", head), list);
}

// Beside the live range that it is about, as far as that is seen, or beside the pointer, where there is room for it; a
// cursor moved by keys has its words beside its line.
function placeTip() {
  const { cursor } = state;
  tip.hidden = !cursor || cursor.quiet === true;
  if (tip.hidden) {
    return;
  }
  fillTip(cursor);
  tip.style.left = "0"; // at the right edge it would be narrow and tall
  const stage = plot.getBoundingClientRect(), { width, height } = tip.getBoundingClientRect();
  const x = stage.left + (cursor.x ?? clamp(middleX(cursor.event), layout.left, layout.right));
  const y = stage.top + (cursor.y ?? (layout.map || layout.chart).top + 10);
  let left = x, right = x, top = y, bottom = y;
  if (cursor.range >= 0) {
    const rect = rectOf(cursor.range);
    left = stage.left + Math.max(rect.left, layout.left);
    right = stage.left + Math.min(rect.right, layout.right);
    top = stage.top + Math.max(rect.top, layout.map.top);
    bottom = stage.top + Math.min(rect.bottom, layout.map.bottom);
  }
  const far = innerWidth - width - 4, deep = innerHeight - height - 4;
  const places = [[right + 12, y + 14], [left - 12 - width, y + 14], [x + 16, bottom + 12], [x + 16, top - 12 - height]];
  const [toX, toY] = places.find(([px, py], i) => (i < 2 ? px >= 4 && px <= far : py >= 4 && py <= deep)) || places[0];
  tip.style.left = `${clamp(toX, 4, Math.max(4, far))}px`;
  tip.style.top = `${clamp(toY, 4, Math.max(4, deep))}px`;
}

const say = (words) => {
  $("live").textContent = words;
};

function describe(spot) {
  const { range } = spot;
  return range >= 0
    ? `${show(data.texts[ranges.name[range]], 80)}, ${bytesText(ranges.bytes[range])}, ${show(reasonOf(range), 120)}`
    : `${stepText(spot.event)}, ${show(nameOf(spot.event), 80)}, ${bytesText(base.planned[spot.event])} in memory`;
}
