/** A part of the page as one SVG: its pictures as they are, its text as text, its canvases as images. */

const SVG = "http://www.w3.org/2000/svg";
const SKIPPED = "textarea, dialog, summary, .visually-hidden, .skip, .spinner, [data-no-export], .neighbors";
const PAINT = [
  "fill",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "stroke-linecap",
  "opacity",
  "fill-opacity",
  "font-family",
  "font-size",
  "font-weight",
  "font-style",
  "text-anchor",
] as const;

interface Origin {
  x: number;
  y: number;
}

/** Draws an element and everything in it that can be seen. */
export function svgOf(root: HTMLElement): SVGSVGElement {
  const box = root.getBoundingClientRect();
  const height = Math.max(box.height, root.scrollHeight);
  const svg = node("svg", { width: box.width, height, viewBox: `0 0 ${box.width} ${height}` }) as SVGSVGElement;
  const paper = getComputedStyle(root.closest(".softlook") ?? root).backgroundColor;
  svg.append(node("rect", { width: box.width, height, fill: hex(paper) }));
  walk(root, svg, { x: box.left - root.scrollLeft, y: box.top - root.scrollTop });
  return svg;
}

/** The text of an SVG file. */
export function textOf(svg: SVGSVGElement): string {
  return new XMLSerializer().serializeToString(svg);
}

/** An SVG as PNG, with `ratio` pixels per unit. */
export async function pngOf(svg: SVGSVGElement, ratio = 2): Promise<Blob> {
  const address = URL.createObjectURL(new Blob([textOf(svg)], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = Math.ceil(svg.width.baseVal.value * ratio);
    canvas.height = Math.ceil(svg.height.baseVal.value * ratio);
    canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) => {
      canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large for a PNG"))));
    });
  } finally {
    URL.revokeObjectURL(address);
  }
}

function node(name: string, attributes: Record<string, string | number>): SVGElement {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  return element;
}

function walk(element: Element, into: SVGElement, origin: Origin): void {
  const style = getComputedStyle(element);
  if (element.matches(SKIPPED) || style.display === "none" || style.visibility === "hidden") return;
  if (element instanceof SVGSVGElement) drawSvg(element, into, origin);
  else if (element instanceof HTMLCanvasElement) drawCanvas(element, into, origin);
  else if (element instanceof HTMLImageElement) drawImage(element, element.src, into, origin);
  else if (element instanceof HTMLInputElement || element instanceof HTMLSelectElement)
    drawControl(element, into, origin);
  else drawContents(element, style, into, origin);
}

function drawContents(element: Element, style: CSSStyleDeclaration, into: SVGElement, origin: Origin): void {
  drawBox(element, style, into, origin);
  if (element instanceof HTMLDetailsElement && !element.open) return;
  if (element.localName === "mfrac") drawFraction(element, style, into, origin);
  for (const child of element.childNodes) {
    if (child instanceof Element) walk(child, into, origin);
    else if (child instanceof Text) drawText(child, style, into, origin);
  }
}

function drawSvg(element: SVGSVGElement, into: SVGElement, origin: Origin): void {
  const box = element.getBoundingClientRect();
  if (!box.width || !box.height) return;
  const copy = element.cloneNode(true) as SVGSVGElement;
  paint(element, copy);
  for (const [key, value] of Object.entries({
    x: box.left - origin.x,
    y: box.top - origin.y,
    width: box.width,
    height: box.height,
    overflow: "visible",
  }))
    copy.setAttribute(key, String(value));
  into.append(copy);
}

/** Style sheets do not go into the file: what they paint becomes attributes. */
function paint(from: Element, to: Element): void {
  const style = getComputedStyle(from);
  for (const name of PAINT) {
    const value = style.getPropertyValue(name);
    to.setAttribute(name, name === "fill" || name === "stroke" ? hex(value) : value);
  }
  for (const name of ["class", "style", "tabindex", "data-key"]) to.removeAttribute(name);
  const children = [...to.children];
  [...from.children].forEach((child, index) => {
    if (getComputedStyle(child).display === "none" && !["title", "defs"].includes(child.localName))
      children[index].remove();
    else paint(child, children[index]);
  });
}

function drawCanvas(canvas: HTMLCanvasElement, into: SVGElement, origin: Origin): void {
  if (canvas.width) drawImage(canvas, canvas.toDataURL(), into, origin);
}

function drawImage(element: HTMLElement, href: string, into: SVGElement, origin: Origin): void {
  const box = element.getBoundingClientRect();
  if (!box.width) return;
  const place = { x: box.left - origin.x, y: box.top - origin.y, width: box.width, height: box.height };
  into.append(node("image", { ...place, href, preserveAspectRatio: "none" }));
}

/** The bar of a fraction, between its two parts. */
function drawFraction(element: Element, style: CSSStyleDeclaration, into: SVGElement, origin: Origin): void {
  const [over, under] = [...element.children].map((child) => child.getBoundingClientRect());
  if (!over || !under) return;
  const y = (over.bottom + under.top) / 2 - origin.y;
  const [x1, x2] = [Math.min(over.left, under.left) - origin.x, Math.max(over.right, under.right) - origin.x];
  into.append(node("line", { x1, x2, y1: y, y2: y, stroke: hex(style.color), "stroke-width": 1 }));
}

/** A field as its text, a slider as a line with its thumb. */
function drawControl(element: HTMLInputElement | HTMLSelectElement, into: SVGElement, origin: Origin): void {
  const style = getComputedStyle(element);
  const box = element.getBoundingClientRect();
  if (!box.width || style.opacity === "0") return;
  const [x, y] = [box.left - origin.x, box.top - origin.y + box.height / 2];
  if (element.type === "range") {
    const { min, max, value } = element as HTMLInputElement;
    const share = (Number(value) - Number(min)) / (Number(max) - Number(min) || 1);
    const ink = hex(style.color);
    into.append(node("line", { x1: x, x2: x + box.width, y1: y, y2: y, stroke: ink, "stroke-opacity": 0.3 }));
    into.append(node("circle", { cx: x + 9 + share * (box.width - 18), cy: y, r: 7, fill: ink }));
    return;
  }
  drawBox(element, style, into, origin);
  const isList = element instanceof HTMLSelectElement;
  const centered = style.textAlign === "center";
  const size = Number.parseFloat(style.fontSize);
  const drawn = node("text", {
    x: centered ? x + box.width / 2 : x + Number.parseFloat(style.paddingLeft) + 1,
    y: y + size * 0.35,
    "text-anchor": centered ? "middle" : "start",
    fill: hex(style.color),
    "font-family": style.fontFamily,
    "font-size": size,
    "font-weight": style.fontWeight,
  });
  drawn.textContent = isList ? (element.selectedOptions[0]?.text ?? "") : element.value;
  into.append(drawn);
}

function drawBox(element: Element, style: CSSStyleDeclaration, into: SVGElement, origin: Origin): void {
  const fill = hex(style.backgroundColor);
  const ring = /^(.+\)) 0px 0px 0px ([\d.]+)px inset$/.exec(style.boxShadow);
  const width = ring ? Number(ring[2]) : Number.parseFloat(style.borderTopWidth);
  const border = width > 0 && style.borderTopStyle !== "none" ? hex(style.borderTopColor) : "none";
  const stroke = ring ? hex(ring[1]) : border;
  if (fill === "none" && stroke === "none") return;
  const box = element.getBoundingClientRect();
  if (!box.width || !box.height) return;
  into.append(
    node("rect", {
      x: box.left - origin.x + width / 2,
      y: box.top - origin.y + width / 2,
      width: Math.max(box.width - width, 0),
      height: Math.max(box.height - width, 0),
      rx: Math.min(Number.parseFloat(style.borderTopLeftRadius) || 0, box.height / 2),
      fill,
      stroke,
      "stroke-width": width,
    }),
  );
}

/** Text line by line, each at the place and in the width that it has on the page. */
function drawText(text: Text, style: CSSStyleDeclaration, into: SVGElement, origin: Origin): void {
  const lines: { words: string[]; box: DOMRect; right: number }[] = [];
  const range = document.createRange();
  for (const word of text.data.matchAll(/\S+/g)) {
    range.setStart(text, word.index);
    range.setEnd(text, word.index + word[0].length);
    const box = range.getBoundingClientRect();
    if (!box.width) continue;
    const line = lines.at(-1);
    if (line && Math.abs(line.box.top - box.top) < 2) {
      line.words.push(word[0]);
      line.right = box.right;
    } else lines.push({ words: [word[0]], box, right: box.right });
  }
  for (const { words, box, right } of lines) {
    const size = Number.parseFloat(style.fontSize);
    const drawn = node("text", {
      x: box.left - origin.x,
      y: box.top - origin.y + box.height / 2 + size * 0.35,
      fill: hex(style.color),
      "font-family": style.fontFamily,
      "font-size": size,
      "font-weight": style.fontWeight,
      "font-style": isVariable(text) ? "italic" : style.fontStyle,
      textLength: right - box.left,
    });
    drawn.textContent = words.join(" ");
    into.append(drawn);
  }
}

/** Single letters of formulas are slanted by the browser, not by a style. */
function isVariable(text: Text): boolean {
  return text.parentElement?.localName === "mi" && text.data.trim().length === 1;
}

const known = new Map<string, string>();

/** A computed color as #rrggbb, or with its opacity as rgba(); "none" if it is transparent. */
function hex(value: string): string {
  if (value === "none" || value.startsWith("url(")) return value;
  const found = known.get(value) ?? pixel(value);
  known.set(value, found);
  return found;
}

/** Any notation of a color, such as oklch(), in one that every program reads: a pixel is painted and read. */
function pixel(value: string): string {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  if (!context) return value;
  context.fillStyle = value;
  context.fillRect(0, 0, 1, 1);
  const [red, green, blue, alpha] = context.getImageData(0, 0, 1, 1).data;
  if (alpha === 0) return "none";
  if (alpha < 255) return `rgba(${red}, ${green}, ${blue}, ${(alpha / 255).toFixed(3)})`;
  return `#${[red, green, blue].map((channel) => channel.toString(16).padStart(2, "0")).join("")}`;
}
