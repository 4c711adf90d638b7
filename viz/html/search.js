// Search by a part of a name or layer (letters of either case), or by a /regular expression/ with its own flags. Each
// text of the file is tried once, however many live ranges and steps have that name. A slow expression is given up
// between two texts; within one text only the browser can stop it.
const search = { ranges: [], events: [], at: -1, error: "" };
const LISTED = 200, PATIENCE = 2000; // matches, milliseconds

function matcher(words) {
  const form = /^\/(.*)\/([a-z]*)$/s.exec(words);
  if (!form) {
    const low = words.toLowerCase();
    return (text) => text.toLowerCase().includes(low);
  }
  let expression;
  try {
    expression = new RegExp(form[1], form[2].replace(/[gy]/g, ""));
  } catch (error) {
    throw new Error(`not a regular expression: ${show(error.message, 120)}`);
  }
  const end = performance.now() + PATIENCE;
  return (text) => {
    if (performance.now() > end) {
      throw new Error(`given up after ${PATIENCE / 1000} s`);
    }
    return expression.test(text);
  };
}

function find() {
  Object.assign(search, { ranges: [], events: [], at: -1, error: "" });
  faded = null;
  const field = $("find");
  if (field.value !== state.find) {
    field.value = state.find;
  }
  if (state.find !== "") {
    try {
      const test = matcher(state.find), hit = data.texts.map((text) => (text !== "" && test(text) ? 1 : 0));
      for (let i = 0; i < ranges.count; i++) {
        if (hit[ranges.name[i]] || hit[ranges.layer[i]]) {
          search.ranges.push(i);
        }
      }
      for (let i = 0; i < base.count; i++) {
        if (hit[events.name[i]] || hit[events.layer[i]]) {
          search.events.push(i);
        }
      }
    } catch (error) {
      search.error = error.message;
    }
  }
  if (state.find !== "" && !search.error && ranges.count) {
    faded = new Uint8Array(ranges.count).fill(1);
    search.ranges.forEach((range) => (faded[range] = 0));
  }
  field.setAttribute("aria-invalid", String(search.error !== ""));
  sayCount();
  listMatches();
}

const targets = () => (search.ranges.length ? search.ranges : search.events);

function sayCount() {
  const many = (count, one) => `${grouped(count)} ${one}${count === 1 ? "" : "s"}`;
  const at = search.at >= 0 ? `${grouped(search.at + 1)} of ` : "";
  $("find-count").textContent = state.find === "" ? ""
    : search.error ? search.error
    : ranges.count ? `${at}${many(search.ranges.length, "live range")}, ${many(search.events.length, data.unit)}`
    : `${at}${many(search.events.length, data.unit)}`;
}

function listMatches() {
  const list = targets(), ofRanges = search.ranges.length > 0;
  $("found").hidden = list.length === 0;
  $("found-head").textContent =
    list.length > LISTED ? `The first ${LISTED} of ${grouped(list.length)} matches` : "Matches";
  $("found-list").replaceChildren(...list.slice(0, LISTED).map((one, i) => {
    const item = element("li"), button = element("button", ofRanges
      ? `${show(data.texts[ranges.name[one]], 80)}, ${bytesText(ranges.bytes[one])}, ${stepText(ranges.from[one])}`
      : `${show(nameOf(one), 80)}, ${stepText(one)}`);
    button.type = "button";
    button.addEventListener("click", () => goTo(i));
    if (ofRanges) {
      button.addEventListener("pointerenter", () => pointAt(one));
      button.addEventListener("pointerleave", () => letGo());
    }
    item.append(button);
    return item;
  }));
}

// Pin the i-th match and bring it into the picture.
function goTo(i) {
  const list = targets();
  if (!list.length) {
    return;
  }
  search.at = (i + list.length) % list.length;
  const one = list[search.at];
  if (search.ranges.length) {
    pin({ event: ranges.from[one], range: one });
    reveal(one);
  } else {
    pin({ event: one, range: -1 });
    revealEvent(one);
  }
  sayCount();
  $("found-list").querySelectorAll("button").forEach((button, k) => button.classList.toggle("now", k === search.at));
}
