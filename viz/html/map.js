// The map of addresses over the axis. First every live range that lies in the picture writes its number into one plane
// of screen pixels, then the plane is coloured in one pass. So the cost is that of the pixels and of a few operations
// per live range, and what the mouse points at is what the pixel under it says.
const plane = { width: 0, height: 0, range: new Int32Array(0), image: null };
let faded = null; // per range 1 where a search is on and it does not match

function fitPlane(width, height) {
  if (plane.width !== width || plane.height !== height) {
    plane.width = width;
    plane.height = height;
    plane.range = new Int32Array(width * height);
    plane.image = new ImageData(width, height);
  }
}

// Calls `see(range)` for every live range that touches the picture.
function visit(first, last, see) {
  for (let block = 0; block < ranges.over.length; block++) {
    if (ranges.over[block] < first) {
      continue;
    }
    const end = Math.min(ranges.count, (block + 1) * BLOCK);
    if (ranges.from[block * BLOCK] > last) {
      return;
    }
    for (let i = block * BLOCK; i < end; i++) {
      if (ranges.to[i] >= first && ranges.from[i] <= last) {
        see(i);
      }
    }
  }
}

// In pixels of the stage, not cut at the panel's edge.
function rectOf(range) {
  const at = positions();
  const left = plotX(at[ranges.from[range]]), right = plotX(at[ranges.to[range] + 1]);
  const top = mapY(ranges.offset[range] + ranges.bytes[range]), bottom = mapY(ranges.offset[range]);
  return { left, top, right, bottom };
}

function fillPlane(first, last, big) {
  const { width, height, range: pixel } = plane, at = positions(), ratio = layout.ratio;
  const perPlace = width / (state.to - state.from), perByte = height / ((state.high - state.low) * ranges.top);
  const floor = state.low * ranges.top;
  pixel.fill(-1);
  visit(first, last, (i) => {
    let left = Math.round((at[ranges.from[i]] - state.from) * perPlace);
    let right = Math.round((at[ranges.to[i] + 1] - state.from) * perPlace);
    let bottom = height - Math.round((ranges.offset[i] - floor) * perByte);
    let top = height - Math.round((ranges.offset[i] + ranges.bytes[i] - floor) * perByte);
    right = right > left ? right : left + 1; // whatever is there has a pixel
    top = top < bottom ? top : bottom - 1;
    if (right <= 0 || left >= width || bottom <= 0 || top >= height) {
      return;
    }
    const wide = right - left, high = bottom - top;
    left = left > 0 ? left : 0;
    right = right < width ? right : width;
    top = top > 0 ? top : 0;
    bottom = bottom < height ? bottom : height;
    for (let y = top, row = top * width; y < bottom; y++, row += width) {
      pixel.fill(i, row + left, row + right);
    }
    if (wide >= 3 * ratio && high >= 3 * ratio) {
      big.add(i);
    }
  });
}

// Colours, hatching, and an edge on the left and top of what is large enough to have one. Looks are in flat
// arrays at 2 * kind, plus 1 where a search fades it: this loop sees every pixel of the screen.
function colorPlane(big) {
  const { width, height, range: pixel } = plane, out = new Uint32Array(plane.image.data.buffer), { kind } = ranges;
  const scale = Math.max(1, Math.round(layout.ratio)), empty = packed(rgbOf(colors.panel)), tile = 60;
  const plain = new Uint32Array(2 * data.kinds.length), marked = plain.slice(), edge = plain.slice();
  const hatch = new Uint8Array(data.kinds.length * tile * tile);
  data.kinds.forEach((one, k) => {
    const rgb = tint(one.rgb);
    for (const pale of [0, 1]) {
      const seen = (color) => packed(pale ? fade(color) : color);
      plain[2 * k + pale] = seen(rgb);
      marked[2 * k + pale] = seen(contrast(rgb));
      edge[2 * k + pale] = seen(edgeOf(rgb));
    }
    for (let i = 0; i < tile * tile; i++) {
      hatch[k * tile * tile + i] = HATCH[one.hatch](i % tile, Math.floor(i / tile));
    }
  });
  const edged = new Uint8Array(ranges.count), pale = faded || new Uint8Array(ranges.count);
  big.forEach((i) => (edged[i] = 1));
  const across = Uint8Array.from({ length: width }, (_, x) => Math.floor(x / scale) % tile);
  for (let y = 0, i = 0; y < height; y++) {
    const row = (Math.floor(y / scale) % tile) * tile;
    for (let x = 0; x < width; x++, i++) {
      const range = pixel[i];
      if (range < 0) {
        out[i] = empty;
        continue;
      }
      const look = 2 * kind[range] + pale[range];
      out[i] = edged[range] && ((x > 0 && pixel[i - 1] !== range) || (y > 0 && pixel[i - width] !== range)) ? edge[look]
        : hatch[kind[range] * tile * tile + row + across[x]] ? marked[look] : plain[look];
    }
  }
}

// Names in rectangles that have room for one as in a picture (view_map.c), the largest first.
function labelMap(context, big) {
  const room = [];
  for (const range of big) {
    const rect = rectOf(range), { map, left, right } = layout;
    const x0 = Math.max(rect.left, left), x1 = Math.min(rect.right, right);
    const y0 = Math.max(rect.top, map.top), y1 = Math.min(rect.bottom, map.bottom);
    const size = Math.min(11, y1 - y0 - 1.5);
    if (size >= 9) {
      room.push({ range, size, x0, x1, y0, y1 });
    }
  }
  room.sort((a, b) => (b.x1 - b.x0) * (b.y1 - b.y0) - (a.x1 - a.x0) * (a.y1 - a.y0));
  context.textAlign = "center";
  context.textBaseline = "middle";
  drawn.names = [];
  for (const { range, size, x0, x1, y0, y1 } of room.slice(0, 300)) {
    const plain = tint(data.kinds[ranges.kind[range]].rgb), rgb = faded && faded[range] ? fade(plain) : plain;
    context.font = FONT.replace("12px", `${size}px`);
    const name = show(boxName(range), 160), whole = context.measureText(name).width;
    if (x1 - x0 - 8 < Math.min(whole, Math.max(44, (whole * 2) / 3))) {
      continue;
    }
    const text = fitText(context, name, x1 - x0 - 8), width = context.measureText(text).width;
    context.fillStyle = css(rgb); // a quiet ground, or the hatch runs through the letters
    context.fillRect((x0 + x1 - width) / 2 - 2, (y0 + y1 - size - 1) / 2, width + 4, size + 1);
    context.fillStyle = textOn(rgb);
    context.fillText(text, (x0 + x1) / 2, (y0 + y1) / 2 + 0.5);
    drawn.names.push(text);
  }
}

function drawMap(context) {
  const { map, left, right, ratio } = layout;
  if (!map) {
    return;
  }
  drawHead(context, map, data.mapHead);
  fitPlane(Math.round((right - left) * ratio), Math.round(map.height * ratio));
  const big = new Set();
  fillPlane(eventAt(state.from), eventAt(state.to), big);
  colorPlane(big);
  context.putImageData(plane.image, Math.round(left * ratio), Math.round(map.top * ratio));
  drawLevels(context, map, state.low * ranges.top, state.high * ranges.top, mapY, false);
  labelMap(context, big);
  strokeFrame(context, left - 0.5, map.top - 0.5, right - left + 1, map.height + 1, colors.line);
}

// What the pixel shows; near a pixel that shows nothing, what is next to it.
function rangeAt(x, y) {
  const { map, left, ratio } = layout;
  if (!map || y < map.top || y >= map.bottom || !plane.width) {
    return -1;
  }
  const px = Math.floor((x - left) * ratio), py = Math.floor((y - map.top) * ratio), reach = Math.ceil(2 * ratio);
  let best = -1, distance = Infinity;
  for (let dy = -reach; dy <= reach; dy++) {
    for (let dx = -reach; dx <= reach; dx++) {
      const cx = px + dx, cy = py + dy;
      if (cx < 0 || cy < 0 || cx >= plane.width || cy >= plane.height) {
        continue;
      }
      const range = plane.range[cy * plane.width + cx], far = dx * dx + dy * dy;
      if (range >= 0 && far < distance) {
        best = range;
        distance = far;
      }
    }
  }
  return best;
}
