// Colours and hatching: the second cue beside colour, the same in map, chart, legend and table, and in pictures (draw.c).
const HATCH = {
  none: () => false,
  rising: (x, y) => (x + y) % 6 === 0,
  falling: (x, y) => (x - y + 60) % 6 === 0,
  cross: (x, y) => (x + y) % 6 === 0 || (x - y + 60) % 6 === 0,
  level: (x, y) => y % 3 === 1,
  dots: (x, y) => (x % 6 === 1 && y % 6 === 1) || (x % 6 === 4 && y % 6 === 4),
};

const rgbOf = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
const lightness = ([r, g, b]) => (0.299 * r + 0.587 * g + 0.114 * b) / 255;

// On black greys come closer together, so that none vanishes or glares; what does not match a search fades into the paper.
function tint(text, faded) {
  const rgb = rgbOf(text), paper = rgbOf(colors.paper), grey = rgb[0] === rgb[1] && rgb[1] === rgb[2];
  const seen = colors.night && grey ? rgb.map((v) => 64 + v * 0.42) : rgb;
  return seen.map((v, i) => Math.round(faded ? paper[i] + (v - paper[i]) * 0.22 : v));
}

const packed = ([r, g, b]) => (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
const darker = (rgb, by) => rgb.map((v) => Math.round(v * (1 - by)));
const lighter = (rgb, by) => rgb.map((v) => Math.round(v + (255 - v) * by));
const css = ([r, g, b]) => `rgb(${r},${g},${b})`;
// What stands out on a colour: its hatch and the edges of its rectangles.
const contrast = (rgb) => (lightness(rgb) < 0.4 ? lighter(rgb, 0.42) : darker(rgb, 0.32));
const inkOn = (rgb) => (lightness(rgb) > 0.5 ? "#000000" : "#ffffff");

const patterns = new Map();
function patternOf(context, look) {
  const key = look.rgb + look.hatch + colors.night + layout.ratio;
  if (!patterns.has(key)) {
    const tile = document.createElement("canvas"), size = 60;
    tile.width = tile.height = size;
    const own = tile.getContext("2d"), image = own.createImageData(size, size);
    const pixel = new Uint32Array(image.data.buffer), rgb = tint(look.rgb, false);
    const scale = Math.max(1, Math.round(layout.ratio));
    for (let i = 0; i < pixel.length; i++) {
      const x = Math.floor((i % size) / scale), y = Math.floor(Math.floor(i / size) / scale);
      pixel[i] = packed(HATCH[look.hatch](x, y) ? contrast(rgb) : rgb);
    }
    own.putImageData(image, 0, 0);
    patterns.set(key, tile);
  }
  const pattern = context.createPattern(patterns.get(key), "repeat");
  pattern.setTransform(new DOMMatrix([1 / layout.ratio, 0, 0, 1 / layout.ratio, 0, 0]));
  return pattern;
}

// A swatch for legend and table.
function swatch(look) {
  const canvas = document.createElement("canvas");
  canvas.width = 16 * layout.ratio;
  canvas.height = 12 * layout.ratio;
  const context = canvas.getContext("2d");
  context.scale(layout.ratio, layout.ratio);
  context.fillStyle = patternOf(context, look);
  context.fillRect(0, 0, 16, 12);
  return canvas;
}
