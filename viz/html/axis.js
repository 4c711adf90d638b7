// Where the panels lie, and the numbers along their edges. All in CSS pixels; the canvas is scaled to the screen's own.
const plot = $("plot"), over = $("over");
const HEAD = 18, LANE = 14, AXIS = 26, GAP = 8, FONT = '12px "DejaVu Sans", Verdana, system-ui, sans-serif';
const layout = {
  width: 0, height: 0, left: 0, right: 0, ratio: 1, map: null, chart: null, residual: [], lanes: null, axisY: 0,
};
// Labels as they stand in the picture: {text, left, right, place}; the peak's mark and its words: {x, words, half};
// the names in the map.
const drawn = { ticks: [], levels: [], names: [], peak: null };

function layOut(width) {
  const wanted = clamp(innerHeight * 0.9 - 250, 300, 900);
  layout.ratio = clamp(devicePixelRatio || 1, 1, 4);
  layout.width = Math.max(240, width);
  const context = plot.getContext("2d");
  context.font = FONT;
  const names = data.lanes.map((lane) => context.measureText(show(lane, 40)).width);
  layout.left = Math.ceil(clamp(Math.max(64, ...names) + 10, 64, layout.width < 640 ? 84 : 170));
  layout.right = layout.width - 10;
  let y = 0;
  const panel = (height) => {
    const top = y + HEAD;
    y = top + height + GAP;
    return { top, height, bottom: top + height };
  };
  layout.map = ranges.count > 0 ? panel(Math.round(wanted * 0.55)) : null;
  layout.chart = panel(Math.round(wanted * (ranges.count > 0 ? 0.45 : 0.8)));
  layout.residual = others.map(() => panel(30));
  const height = LANE * data.lanes.length;
  layout.lanes = height > 0 ? { top: y, height, bottom: y + height } : null;
  layout.axisY = layout.lanes ? layout.lanes.bottom : y - GAP;
  layout.height = layout.axisY + AXIS;
  for (const canvas of [plot, over]) {
    const w = Math.round(layout.width * layout.ratio), h = Math.round(layout.height * layout.ratio);
    if (canvas.width !== w || canvas.height !== h) {
      canvas.width = w;
      canvas.height = h;
    }
    canvas.style.height = layout.height + "px";
    canvas.getContext("2d").setTransform(layout.ratio, 0, 0, layout.ratio, 0, 0);
  }
}

const plotX = (place) => layout.left + ((place - state.from) / (state.to - state.from)) * (layout.right - layout.left);
const placeAt = (x) => state.from + ((x - layout.left) / (layout.right - layout.left)) * (state.to - state.from);

// The middle of an event.
function middleX(event) {
  const at = positions();
  return (plotX(at[event]) + plotX(at[event + 1])) / 2;
}

// Addresses grow upwards.
const offsetAt = (y) =>
  (state.low + ((layout.map.bottom - y) / layout.map.height) * (state.high - state.low)) * ranges.top;
const mapY = (offset) =>
  layout.map.bottom - ((offset / ranges.top - state.low) / (state.high - state.low)) * layout.map.height;

// The smallest of 1, 2, 5 * 10^k that cuts `range` into at most `parts` pieces.
function tickStep(range, parts, least) {
  for (let power = Math.pow(10, Math.floor(Math.log10(range / parts))); ; power *= 10) {
    for (const mantissa of [1, 2, 5]) {
      if (mantissa * power >= least * (1 - 1e-9) && range / (mantissa * power) <= parts) {
        return mantissa * power;
      }
    }
  }
}

// All labels of an axis share the unit that suits its end, with as many decimals as tell one from the next.
function tickText(value, step, end, units) {
  let u = 0, scale = 1;
  for (; units && u + 1 < units.length && end / scale >= 1000; u++) {
    scale *= 1000;
  }
  const decimals = step / scale < 1 ? Math.min(9, Math.ceil(-Math.log10(step / scale) - 1e-9)) : 0;
  return value === 0 ? "0" : (value / scale).toFixed(decimals) + (units ? " " + units[u] : "");
}

// Marks along the x axis: as many as have room for the widest of their labels.
function drawTicks(context) {
  const time = state.axis === "time", units = time ? NS_UNITS : null;
  const width = layout.right - layout.left, range = state.to - state.from;
  context.font = FONT;
  context.textBaseline = "middle";
  let step = 1, parts = Math.max(1, Math.floor(width / 50));
  for (; parts > 1; parts--) {
    step = tickStep(range, parts, 1);
    const wide = (place) => context.measureText(tickText(place + step / 3, step, state.to, units)).width;
    const widest = Math.max(wide(state.from), wide(state.to));
    if ((step / range) * width >= widest + 14) {
      break;
    }
  }
  step = tickStep(range, parts, 1);
  drawn.ticks = [];
  let clear = layout.left - 20;
  for (let i = Math.ceil(state.from / step - 1e-9); i * step <= state.to * (1 + 1e-12); i++) {
    const place = i * step, text = tickText(place, step, state.to, units);
    const x = plotX(place), half = context.measureText(text).width / 2;
    const middle = Math.min(x, layout.width - half - 1);
    if (x > layout.right + 0.5 || middle - half < clear) {
      continue;
    }
    clear = middle + half + 6;
    wash(context, Math.round(x), layout.axisY, 1, 5, colors.quiet);
    context.textAlign = "center";
    context.fillText(text, middle, layout.axisY + 15);
    drawn.ticks.push({ text, left: middle - half, right: middle + half, place, x });
  }
  context.textAlign = "right";
  context.fillStyle = colors.quiet;
  if (!drawn.ticks.length || drawn.ticks[0].left > layout.left - 8) {
    context.fillText(time ? "time" : data.unit, layout.left - 10, layout.axisY + 15);
  }
}

// As much of a text as has room; "" when that is nothing to read.
function fitText(context, text, width) {
  let fits = show(text, 160), letters = fits.length;
  for (let is = context.measureText(fits).width; is > width; is = context.measureText(fits).width) {
    letters = Math.min(letters - 1, Math.floor(letters * (width / is)));
    if (letters < 6) {
      return "";
    }
    fits = show(text, letters);
  }
  return fits;
}

// To the left of a panel.
function writeBeside(context, text, y) {
  context.font = FONT;
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.fillStyle = colors.quiet;
  context.fillText(text, layout.left - 8, y);
}

// Lines and labels across a panel. `at` gives the y of a number of bytes.
function drawLevels(context, panel, low, high, at, lines) {
  const step = tickStep(Math.max(1, high - low), Math.max(2, Math.floor(panel.height / 34)), 1);
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12); i++) {
    const y = at(i * step);
    if (y < panel.top - 0.5 || y > panel.bottom + 0.5) {
      continue;
    }
    if (lines) {
      wash(context, layout.left, Math.round(y), layout.right - layout.left, 1, colors.faint);
    }
    const text = tickText(i * step, step, high, BYTE_UNITS);
    const level = clamp(y, panel.top + 6, panel.bottom - 2);
    writeBeside(context, text, level);
    drawn.levels.push({ text, y: level });
  }
}

function drawHead(context, panel, text) {
  context.font = FONT;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillStyle = colors.quiet;
  let fits = text; // a sentence loses its end
  for (let letters = text.length; context.measureText(fits).width > layout.right - layout.left; letters--) {
    fits = text.slice(0, letters - 1) + "…";
  }
  context.fillText(fits, layout.left, panel.top - HEAD / 2);
}
