// The stack of bytes by category with the other traces as lines, what they differ by, and the lanes of what ran when.
// A column of pixels shows its highest event.
const scaleY = { fold: 0, foldHeight: 0, end: 1, far: "" };

function measureChart() {
  let most = 1;
  for (const trace of traces) {
    most = Math.max(most, trace.planned[highest(trace.planned, trace.highest, 0, trace.count - 1)]);
  }
  const lines = [data.budget, data.capacity].filter((line) => line > 0 && line <= 2 * most);
  const beside = bands.find((band) => band.outside);
  const outside = beside ? beside.bytes.reduce((a, b) => Math.max(a, b), 0) : 0;
  const far = [["budget", data.budget], ["capacity", data.capacity]].filter(([, line]) => line > 2 * most);
  scaleY.far = far.map(([name, line]) => `; ${name} ${bytesText(line)}, far above`).join("");
  const top = Math.max(most + outside, ...lines);
  // A static block that would leave no height for the rest is drawn flat.
  scaleY.fold = base.static > top / 2 && base.static < most ? base.static : 0;
  scaleY.foldHeight = scaleY.fold ? Math.round(layout.chart.height * 0.26) : 0;
  // Room above for the labels of peak and budget.
  const height = layout.chart.height - scaleY.foldHeight;
  scaleY.end = scaleY.fold + ((top - scaleY.fold) * height) / (height - 36);
}

function chartY(bytes) {
  const { bottom, height } = layout.chart, { fold, foldHeight, end } = scaleY;
  return bytes <= fold && fold
    ? bottom - (bytes / fold) * foldHeight
    : bottom - foldHeight - ((bytes - fold) / (end - fold)) * (height - foldHeight);
}

// Runs of columns that show the same event: see(event, left, right). -1: nothing is known there.
function eachRun(trace, value, levels, see) {
  const at = positions(trace), ratio = layout.ratio;
  const columns = Math.round((layout.right - layout.left) * ratio), per = (state.to - state.from) / columns;
  let run = -2, start = 0;
  for (let c = 0; c <= columns; c++) {
    let event = -2;
    if (c < columns) {
      const from = state.from + c * per, to = from + per;
      if (from >= at[trace.count] || to <= at[0]) {
        event = -1;
      } else {
        let first = firstFrom(from, trace);
        first = first === trace.count || at[first] > from ? Math.max(0, first - 1) : first;
        event = highest(value, levels, first, Math.max(first, firstFrom(to, trace) - 1));
      }
    }
    if (event !== run) {
      if (run >= -1 && c > 0) {
        see(run, layout.left + start / ratio, layout.left + c / ratio);
      }
      run = event;
      start = c;
    }
  }
}

function drawStack(context) {
  const looks = bands.map((band) => ({ fill: patternOf(context, band), band }));
  const runs = [];
  eachRun(base, base.planned, base.highest, (event, left, right) => event >= 0 && runs.push([event, left, right]));
  const floor = new Float64Array(runs.length);
  const hair = runs.length < 200;
  for (const { fill, band } of looks) {
    context.fillStyle = fill;
    runs.forEach(([event, left, right], i) => {
      const bytes = band.bytes[event];
      if (bytes > 0) {
        const bottom = chartY(floor[i]), top = chartY(floor[i] + bytes);
        context.fillRect(left, top, right - left, bottom - top);
        floor[i] += bytes;
      }
    });
    if (hair) { // a hair of paper between bands
      context.fillStyle = colors.paper;
      runs.forEach(([event, left, right], i) => {
        if (band.bytes[event] > 0) {
          context.fillRect(left, chartY(floor[i]), right - left, 0.6);
        }
      });
    }
  }
}

function drawOthers(context) {
  others.forEach((other, nth) => {
    context.beginPath();
    let pen = false;
    eachRun(other, other.planned, other.highest, (event, left, right) => {
      if (event < 0) {
        pen = false;
        return;
      }
      const y = chartY(other.planned[event]);
      pen ? context.lineTo(left, y) : context.moveTo(left, y);
      context.lineTo(right, y);
      pen = true;
    });
    context.setLineDash([]);
    context.lineWidth = 3.4;
    context.strokeStyle = colors.paper;
    context.stroke();
    context.setLineDash(DASHES[nth]);
    context.lineWidth = 1.6;
    context.strokeStyle = colors.text;
    context.stroke();
    context.setLineDash([]);
  });
}

function label(context, text, x, y, align) {
  context.textAlign = align;
  context.textBaseline = "middle";
  context.lineWidth = 4;
  context.lineJoin = "round";
  context.strokeStyle = colors.paper;
  context.strokeText(text, x, y);
  context.fillStyle = colors.text;
  context.fillText(text, x, y);
}

function drawMarks(context) {
  const { chart, left, right } = layout, { peak } = data, x = middleX(peak), y = chartY(base.planned[peak]);
  context.font = "bold " + FONT;
  const text = `peak ${bytesText(base.planned[peak])}`, half = context.measureText(text).width / 2;
  // The words on a line stand at its end that is farther from the peak, whose words keep off them.
  const atLeft = x > (left + right) / 2 && x <= right, lines = [];
  let low = left + half + 3, high = right - half - 3;
  const rule = (bytes, name, dash, color) => {
    const at = chartY(bytes), words = `${name} ${bytesText(bytes)}`, wide = context.measureText(words).width;
    if (!bytes || at < chart.top) {
      return;
    }
    strokeLine(context, left, at, right, at, color, 1.6, dash);
    const middle = lines.some((other) => Math.abs(other - at) < 16) ? at + 9 : at - 8;
    label(context, words, atLeft ? left + 4 : right - 4, middle, atLeft ? "left" : "right");
    lines.push(at);
    if (Math.abs(middle - (y - 16)) < 16) {
      low = atLeft ? Math.max(low, left + wide + half + 14) : low;
      high = atLeft ? high : Math.min(high, right - wide - half - 14);
    }
  };
  rule(data.budget, "budget", [7, 4], colors.mark);
  rule(data.capacity, "capacity", [2, 3], colors.text);
  if (x >= left && x <= right) {
    drawn.peak = { x, words: clamp(x, low, high), half };
    context.lineWidth = 3;
    context.strokeStyle = colors.paper;
    context.fillStyle = colors.text;
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x - 4.5, y - 8);
    context.lineTo(x + 4.5, y - 8);
    context.closePath();
    context.stroke();
    context.fill();
    label(context, text, drawn.peak.words, y - 16, "center");
  }
}

function drawChart(context) {
  const { chart, left, right } = layout;
  measureChart();
  wash(context, left, chart.top, right - left, chart.height, colors.panel);
  drawHead(context, chart, data.chartHead + scaleY.far);
  drawLevels(context, { ...chart, bottom: chart.bottom - scaleY.foldHeight }, scaleY.fold, scaleY.end, chartY, true);
  clipTo(context, chart, () => {
    drawStack(context);
    drawOthers(context);
  });
  if (scaleY.fold) {
    label(context, "static block, not to scale", right - 4, chart.bottom - scaleY.foldHeight / 2, "right");
  }
  drawMarks(context);
  strokeFrame(context, left - 0.5, chart.top - 0.5, right - left + 1, chart.height + 1, colors.line);
}

function drawResiduals(context) {
  others.forEach((other, nth) => {
    const panel = layout.residual[nth], middle = Math.round((panel.top + panel.bottom) / 2);
    const most = other.distance[highest(other.distance, other.furthest, 0, base.count - 1)];
    drawHead(context, panel, nth === 0 && data.residual !== "" ? data.residual
      : `${other.label} less ${base.label}, at most ${bytesText(most)}: ${other.verdict}`);
    wash(context, layout.left, panel.top, layout.right - layout.left, panel.height, colors.panel);
    context.fillStyle = colors.mark;
    eachRun(base, other.distance, other.furthest, (event, left, right) => {
      if (event >= 0 && other.residual[event] !== 0) {
        const tall = Math.max(1, (other.distance[event] / most) * (panel.height / 2));
        context.fillRect(left, other.residual[event] > 0 ? middle - tall : middle, right - left, tall);
      }
    });
    wash(context, layout.left, middle, layout.right - layout.left, 1, colors.quiet);
    writeBeside(context, "0", middle);
  });
}

// The longest of what ran in a column gives its colour: recomputation and copies stand out.
function drawLanes(context) {
  if (!layout.lanes) {
    return;
  }
  const { left, right, ratio, lanes } = layout, columns = Math.round((right - left) * ratio);
  const mark = new Uint8Array(columns * data.lanes.length), per = columns / (state.to - state.from);
  const time = state.axis === "time", first = firstFrom(state.from), at = positions();
  for (let i = time ? 0 : Math.max(0, first - 1); i < base.count; i++) {
    const lane = events.lane[i];
    if (lane >= data.lanes.length) {
      continue;
    }
    const from = time ? events.start[i] : at[i], to = time ? events.end[i] : at[i] + 1;
    if (!time && from > state.to) {
      break;
    }
    if (to < state.from || from > state.to) {
      continue;
    }
    const a = clamp(Math.floor((from - state.from) * per + 1e-3), 0, columns - 1);
    const b = clamp(Math.ceil((to - state.from) * per - 1e-3), a + 1, columns);
    const role = data.spans[events.span[i]].role + 1;
    for (let c = lane * columns + a; c < lane * columns + b; c++) {
      mark[c] = mark[c] > role ? mark[c] : role;
    }
  }
  const roles = data.roles.map((look) => patternOf(context, look));
  context.font = FONT;
  data.lanes.forEach((name, lane) => {
    const y = lanes.top + lane * LANE;
    wash(context, left, y + 2, right - left, LANE - 3, colors.panel);
    for (let c = 0, start = 0; c < columns; c = start) {
      const is = mark[lane * columns + c];
      for (start = c + 1; start < columns && mark[lane * columns + start] === is; start++);
      if (is) {
        wash(context, left + c / ratio, y + 2, (start - c) / ratio, LANE - 3, roles[is - 1]);
      }
    }
    writeBeside(context, fitText(context, name, left - 10), y + LANE / 2 + 0.5);
  });
}
