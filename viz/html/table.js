// Under the picture: bytes by category, what is in memory and why, facts.
const ROWS = 200;
// `seen`: in windows that have room, by classes of the style sheet.
const COLUMNS = [
  { key: "name", text: "name", of: (i) => data.texts[ranges.name[i]] },
  { key: "layer", text: "layer", of: (i) => data.texts[ranges.layer[i]], seen: "spare" },
  { key: "kind", text: "kind", of: (i) => data.kinds[ranges.kind[i]].name, seen: "wide" },
  { key: "bytes", text: "bytes", of: (i) => ranges.bytes[i], number: true, show: (i) => grouped(ranges.bytes[i]) },
  { key: "place", text: data.noPlan ? "address" : "offset", of: (i) => ranges.offset[i], number: true, seen: "spare",
    show: addressOf },
  { key: "birth", text: "birth", of: (i) => ranges.from[i], number: true, seen: "wide",
    show: (i) => grouped(events.step[ranges.from[i]]) },
  { key: "death", text: "death", of: (i) => ranges.to[i], number: true, seen: "wide",
    show: (i) => (isFreed(i) ? grouped(events.step[ranges.to[i]]) : "end") },
  { key: "why", text: "why", of: (i) => reasonOf(i) },
];
const table = { key: "", rows: [], timer: 0 };

// The event whose memory the table shows.
function tableEvent() {
  if (state.table === "pin" && state.pin) {
    return state.pin.event;
  }
  return state.table === "cursor" && state.seen >= 0 ? state.seen : data.peak;
}

function sortRanges(which) {
  const by = COLUMNS.find((one) => one.key === state.sort.key) || COLUMNS[3], sign = state.sort.down ? -1 : 1;
  const value = new Map(which.map((i) => [i, by.of(i)]));
  const compare = (a, b) => (value.get(a) < value.get(b) ? -1 : value.get(a) > value.get(b) ? 1 : 0);
  return which.sort((a, b) => sign * compare(a, b) || ranges.bytes[b] - ranges.bytes[a] || a - b);
}

const kindOf = (one) => (one.number ? "number" : "text") + (one.seen ? " " + one.seen : "");

function fillRow(range) {
  const row = element("tr");
  row.dataset.range = range;
  row.tabIndex = -1;
  for (const one of COLUMNS) {
    const td = element("td", one.show ? one.show(range) : show(one.of(range), 120), kindOf(one));
    row.append(td);
    if (one.key === "name") {
      td.prepend(swatch(data.kinds[ranges.kind[range]]));
    }
  }
  return row;
}

function fillTable(soon = false) {
  if (!ranges.count) {
    return;
  }
  const event = tableEvent(), key = `${event} ${state.sort.key} ${state.sort.down} ${colors.night}`;
  for (const name of TABLES) {
    $("at-" + name).setAttribute("aria-pressed", String(state.table === name));
  }
  $("at-pin").disabled = !state.pin;
  clearTimeout(table.timer);
  if (key === table.key) {
    markRows();
    return;
  }
  if (soon) { // once the pointer rests: rows take longer than a frame
    table.timer = setTimeout(() => fillTable(), 60);
    return;
  }
  table.key = key;
  const alive = [];
  let sum = 0;
  visit(event, event, (i) => {
    alive.push(i);
    sum += ranges.bytes[i];
  });
  sortRanges(alive);
  const more = alive.length > ROWS ? `; the first ${ROWS} are listed` : "";
  $("alive-sum").textContent =
    `${stepText(event)}${event === data.peak ? " (peak)" : ""}, ${show(nameOf(event), 100)}: ` +
    `${grouped(alive.length)} ${alive.length === 1 ? "block" : "blocks"}, ${bytesText(sum)} (${grouped(sum)} B)` +
    `${base.static > 0 ? ` beside the static block of ${bytesText(base.static)}` : ""}${more}`;
  table.rows = alive.slice(0, ROWS).map(fillRow);
  if (table.rows.length) {
    table.rows[0].tabIndex = 0;
  }
  $("alive-rows").replaceChildren(...table.rows);
  for (const one of COLUMNS) {
    const order = state.sort.down ? "descending" : "ascending";
    $("head-" + one.key).setAttribute("aria-sort", state.sort.key === one.key ? order : "none");
  }
  markRows();
}

function markRows() {
  const here = state.cursor ? state.cursor.range : -1, pinned = state.pin ? state.pin.range : -1;
  const kin = here >= 0 ? ranges.layer[here] : pinned >= 0 ? ranges.layer[pinned] : -1;
  const named = kin >= 0 && data.texts[kin] !== "";
  for (const row of table.rows) {
    const range = Number(row.dataset.range);
    row.classList.toggle("over", range === here);
    row.classList.toggle("pinned", range === pinned);
    row.classList.toggle("kin", named && ranges.layer[range] === kin);
  }
}

function buildTable() {
  $("alive").hidden = !ranges.count;
  for (const one of COLUMNS) {
    const th = element("th", "", kindOf(one)), button = element("button", one.text);
    th.id = "head-" + one.key;
    th.scope = "col";
    button.type = "button";
    button.addEventListener("click", () => {
      state.sort = { key: one.key, down: state.sort.key === one.key ? !state.sort.down : Boolean(one.number) };
      fillTable();
    });
    th.append(button);
    $("alive-heads").append(th);
  }
  const body = $("alive-rows"), rangeOf = (event) => Number(event.target.closest("tr")?.dataset.range ?? -1);
  body.addEventListener("pointerover", (event) => pointAt(rangeOf(event)));
  body.addEventListener("pointerleave", () => letGo());
  const choose = (event) => {
    const range = rangeOf(event);
    if (range >= 0) {
      pin({ event: tableEvent(), range });
      reveal(range);
    }
  };
  body.addEventListener("click", choose);
  body.addEventListener("focusin", (event) => pointAt(rangeOf(event)));
  body.addEventListener("focusout", () => letGo());
  body.addEventListener("keydown", (event) => {
    const row = event.target.closest("tr");
    const next = event.key === "ArrowDown" ? row?.nextSibling : event.key === "ArrowUp" ? row?.previousSibling : null;
    if (next) {
      next.focus();
    } else if (event.key === "Enter") {
      choose(event);
    }
    if (next || event.key === "Enter") {
      event.preventDefault();
    }
  });
  for (const name of TABLES) {
    $("at-" + name).addEventListener("click", () => {
      state.table = name;
      refresh();
    });
  }
}

// Swatches depend on the colours; the bytes beside them on the cursor.
const legend = [];
function buildLegend() {
  legend.length = 0;
  const items = [];
  const item = (picture, name, bytesAt) => {
    const li = element("li"), value = element("b");
    li.append(picture, element("span", name), value);
    items.push(li);
    legend.push({ value, bytesAt });
  };
  [...bands].reverse().forEach((band) => item(swatch(band), band.name, (event) => bytesText(band.bytes[event])));
  data.kinds.filter((kind) => kind.extra).forEach((kind) => item(swatch(kind), kind.name, () => ""));
  others.forEach((other, nth) =>
    item(stroke(nth), show(other.label, 60), (event) => bytesText(base.planned[event] + other.residual[event])));
  $("legend").replaceChildren(...items);
}

function fillLegend() {
  const [where, event] = state.cursor ? ["cursor", state.cursor.event]
    : state.pin ? ["pin", state.pin.event] : ["peak", data.peak];
  $("legend-at").textContent = `at the ${where}, ${stepText(event)}`;
  for (const { value, bytesAt } of legend) {
    value.textContent = bytesAt(event);
  }
}

function buildFacts() {
  $("title").textContent = show(data.title);
  document.title = show(data.title, 120);
  for (const words of data.head) {
    $("head").append(element("p", show(words)));
  }
  for (const [name, words] of data.facts) {
    $("facts").append(element("dt", name), element("dd", show(words, 1000)));
  }
}
