// The page's data: written by view_html_data.c as columns of whole numbers, each but the first as the difference to the
// one before it; a pair [difference, count] repeats one. Names are numbers of texts.
const data = JSON.parse(document.getElementById("data").textContent);

function column(list, count, Type) {
  const out = new Type(count);
  let value = 0, i = 0;
  for (const item of list) {
    const repeated = typeof item !== "number";
    const difference = repeated ? item[0] : item;
    for (let n = repeated ? item[1] : 1; n > 0; n--) {
      value += difference;
      out[i++] = value;
    }
  }
  return out;
}

// Which of 2, 4, 8, ... neighbours is the highest: a column of the picture asks for thousands of events at once.
function pyramid(value) {
  const levels = [];
  for (let below = null, n = value.length; n > 1; n = levels[levels.length - 1].length) {
    const level = new Int32Array((n + 1) >> 1);
    for (let j = 0; j < level.length; j++) {
      const a = below ? below[2 * j] : 2 * j;
      const b = 2 * j + 1 < n ? (below ? below[2 * j + 1] : 2 * j + 1) : a;
      level[j] = value[b] > value[a] ? b : a;
    }
    levels.push(level);
    below = level;
  }
  return levels;
}

// The first highest of from..to, both included.
function highest(value, levels, from, to) {
  let best = from;
  for (let lo = from, hi = to + 1, k = 0; lo < hi; lo >>= 1, hi >>= 1, k++) {
    if (lo & 1) {
      const e = k ? levels[k - 1][lo] : lo;
      best = value[e] > value[best] || (value[e] === value[best] && e < best) ? e : best;
      lo++;
    }
    if (hi & 1) {
      hi--;
      const e = k ? levels[k - 1][hi] : hi;
      best = value[e] > value[best] || (value[e] === value[best] && e < best) ? e : best;
    }
  }
  return best;
}

function readTrace(from) {
  const n = from.count;
  const trace = {
    ...from,
    steps: column(from.steps, n + 1, Float64Array), // event i lasts steps[i] .. steps[i + 1]
    time: column(from.time, n + 1, Float64Array),
    planned: from.planned.length ? column(from.planned, n, Float64Array) : sumOfBands(n),
  };
  trace.highest = pyramid(trace.planned);
  return trace;
}

// From the bottom of the stack to its top.
const eventCount = data.traces[data.base].count;
const bands = data.bands.map((band) => ({ ...band, bytes: column(band.bytes, eventCount, Float64Array) }));

function sumOfBands(count) {
  const sum = new Float64Array(count);
  for (const { bytes } of bands.filter((band) => !band.outside)) {
    for (let i = 0; i < count; i++) {
      sum[i] += bytes[i];
    }
  }
  return sum;
}

const traces = data.traces.map(readTrace);
const base = traces[data.base];
const others = traces.filter((trace) => trace !== base);
const events = {
  count: base.count,
  name: column(data.events.name, base.count, Int32Array),
  layer: column(data.events.layer, base.count, Int32Array),
  span: column(data.events.span, base.count, Uint8Array),
  lane: column(data.events.lane, base.count, Uint8Array),
  start: column(data.events.start, base.count, Float64Array),
  end: column(data.events.end, base.count, Float64Array),
  step: column(data.events.step, base.count, Float64Array),
};
const ranges = { count: data.ranges.count, top: data.top };
for (const key of ["name", "layer", "from", "to", "born", "last", "copied"]) {
  ranges[key] = column(data.ranges[key], ranges.count, Int32Array);
}
for (const key of ["offset", "bytes", "high", "low"]) {
  ranges[key] = column(data.ranges[key], ranges.count, Float64Array);
}
for (const key of ["kind", "why"]) {
  ranges[key] = column(data.ranges[key], ranges.count, Uint8Array);
}
// Live ranges are in order of birth; whole blocks of them that are over before the picture begins are skipped.
const BLOCK = 256;
ranges.over = new Int32Array(Math.ceil(ranges.count / BLOCK));
for (let i = 0; i < ranges.count; i++) {
  const block = Math.floor(i / BLOCK);
  ranges.over[block] = Math.max(ranges.over[block], ranges.to[i]);
}
ranges.ofLayer = new Map();
for (let i = 0; i < ranges.count; i++) {
  if (data.texts[ranges.layer[i]] !== "") {
    const kin = ranges.ofLayer.get(ranges.layer[i]);
    kin ? kin.push(i) : ranges.ofLayer.set(ranges.layer[i], [i]);
  }
}

// Other traces against the base, event by event of the base: what the other has in memory at the same step.
for (const other of others) {
  other.residual = new Float64Array(base.count);
  other.distance = new Float64Array(base.count);
  for (let i = 0, j = 0; i < base.count; i++) {
    while (j + 1 < other.count && other.steps[j + 1] <= base.steps[i]) {
      j++;
    }
    other.residual[i] = other.steps[other.count] > base.steps[i] ? other.planned[j] - base.planned[i] : 0;
    other.distance[i] = Math.abs(other.residual[i]);
  }
  other.furthest = pyramid(other.distance);
}

// Words. What a file calls things may hold anything: no control characters, nothing that turns the direction of text,
// and of long names the two ends.
const unseen = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufffe\uffff]/g;

function shorten(text, most) {
  const front = Math.ceil((most - 1) / 2);
  return text.length <= most ? text : text.slice(0, front) + "…" + text.slice(text.length - (most - 1 - front));
}

function show(text, most = 300) {
  return shorten(shorten(text, 4 * most).replace(unseen, "\ufffd"), most);
}

const nameOf = (event) => data.texts[events.name[event]];
// In the map a block of a program without a plan is called by its module, where that is known.
const boxName = (range) => (data.noPlan && data.texts[ranges.layer[range]]) || data.texts[ranges.name[range]];
// A live range that reaches the last event ends with it only where that is a free.
const isFreed = (range) =>
  ranges.to[range] < base.count - 1 || data.spans[events.span[ranges.to[range]]].name === "free";
const grouped = (value) => String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ",");

function quantity(value, units) {
  let u = 0, size = Math.abs(value);
  while (u + 1 < units.length && size >= (u === 0 ? 1000 : 999.5)) {
    size /= 1000;
    u++;
  }
  const digits = u === 0 ? 0 : size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  return (value < 0 ? "−" : "") + size.toFixed(digits) + " " + units[u];
}

const BYTE_UNITS = ["B", "kB", "MB", "GB", "TB", "PB", "EB"], NS_UNITS = ["ns", "us", "ms", "s"];
const bytesText = (value) => quantity(value, BYTE_UNITS);
const nsText = (value) => quantity(value, NS_UNITS);
const stepText = (event) => `${data.unit} ${events.step[event]}`;

// A clause with its words: the letters behind % as in live_reasons.c.
function reasonOf(range) {
  const step = (event) => (event >= 0 ? events.step[event] : ""), name = (event) => (event >= 0 ? nameOf(event) : "");
  const { from, to, born, last, copied } = ranges, layer = data.texts[ranges.layer[range]];
  const word = {
    n: data.texts[ranges.name[range]], y: layer ? ` in ${layer}` : "", b: step(born[range]), B: name(born[range]),
    l: step(last[range]), L: name(last[range]), c: step(copied[range]), e: step(to[range]), f: from[range], t: to[range],
  };
  return data.reasons[ranges.why[range]].replace(/%(\w)/g, (_, letter) => word[letter]);
}

function addressOf(range) {
  const { high, low } = ranges;
  return high[range] || low[range]
    ? "0x" + ((BigInt(high[range]) << 32n) + BigInt(low[range])).toString(16)
    : grouped(ranges.offset[range]);
}
