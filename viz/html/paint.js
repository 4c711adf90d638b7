// Colours and hatching: the second cue beside colour, the same in map, chart, legend and table, and in pictures
// (draw.c).
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

// On black no grey vanishes or glares, and each stays apart from the next.
function tint(text) {
  const rgb = rgbOf(text), grey = rgb[0] === rgb[1] && rgb[1] === rgb[2];
  return colors.night && grey ? rgb.map((v) => Math.max(Math.round(v * 0.9), 80)) : rgb;
}

// What does not match a search goes into the paper.
const fade = (rgb) => rgbOf(colors.paper).map((paper, i) => Math.round(paper + (rgb[i] - paper) * 0.22));

const packed = ([r, g, b]) => (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
const darker = (rgb, by) => rgb.map((v) => Math.round(v * (1 - by)));
const lighter = (rgb, by) => rgb.map((v) => Math.round(v + (255 - v) * by));
const css = ([r, g, b]) => `rgb(${r},${g},${b})`;
// What stands out on a colour: its hatch and the edges of its rectangles.
const contrast = (rgb) => (lightness(rgb) < 0.4 ? lighter(rgb, 0.42) : darker(rgb, 0.32));
// Edges stand out more than hatching, or hatched neighbours run together.
const edgeOf = (rgb) => (lightness(rgb) < 0.4 ? lighter(rgb, 0.75) : darker(rgb, 0.6));

// Black or white, whichever has more contrast by WCAG 2.2: they are alike on a relative luminance of 0.179.
function textOn(rgb) {
  const [r, g, b] = rgb.map((v) => (v <= 10 ? v / 3294.6 : Math.pow((v / 255 + 0.055) / 1.055, 2.4)));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}

const patterns = new Map();
function patternOf(context, look) {
  const key = look.rgb + look.hatch + colors.night + layout.ratio;
  if (!patterns.has(key)) {
    const tile = document.createElement("canvas"), size = 60;
    tile.width = tile.height = size;
    const own = tile.getContext("2d"), image = own.createImageData(size, size);
    const pixel = new Uint32Array(image.data.buffer), rgb = tint(look.rgb);
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

function strokeLine(context, x0, y0, x1, y1, color, width, dash = []) {
  context.setLineDash(dash);
  context.strokeStyle = color;
  context.lineWidth = width;
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
  context.setLineDash([]);
}

function strokeFrame(context, x, y, width, height, color, pen = 1) {
  context.strokeStyle = color;
  context.lineWidth = pen;
  context.strokeRect(x, y, width, height);
}

// An area of one colour or pattern.
function wash(context, x, y, width, height, color, alpha = 1) {
  context.fillStyle = color;
  context.globalAlpha = alpha;
  context.fillRect(x, y, width, height);
  context.globalAlpha = 1;
}

// What `paint` draws is cut at the edges of a panel.
function clipTo(context, { top, height }, paint) {
  context.save();
  context.beginPath();
  context.rect(layout.left, top, layout.right - layout.left, height);
  context.clip();
  paint();
  context.restore();
}

// A small picture for legend and table.
function small(paint) {
  const canvas = document.createElement("canvas");
  canvas.width = 16 * layout.ratio;
  canvas.height = 12 * layout.ratio;
  const context = canvas.getContext("2d");
  context.scale(layout.ratio, layout.ratio);
  paint(context);
  return canvas;
}

const swatch = (look) => small((context) => wash(context, 0, 0, 16, 12, patternOf(context, look)));

// How the lines of the other traces are told apart.
const DASHES = [[], [6, 3], [2, 2], [9, 3, 2, 3], [1, 3], [12, 4], [4, 1]];

const stroke = (nth) => small((context) => strokeLine(context, 0, 6, 16, 6, colors.text, 1.6, DASHES[nth]));
