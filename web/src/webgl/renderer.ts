/** Draws tiles with WebGL2. The color scale is uniforms and a palette: a slider draws again and fetches nothing. */
import type { Frame } from "../types";
import type { MapShape, Viewport } from "./pyramid";

/** How weights become colors. */
export interface ColorScale {
  log: boolean;
  /** Powers of ten below 1 that the log scale spans, and the weight at which the linear scale is full. */
  decades: number;
  full: number;
  /** 256 colors from the smallest to the largest, as bytes of red, green, blue, alpha. */
  palette: Uint8Array;
  /** The color of weight 0 and of masked cells. */
  empty: [number, number, number];
}

/** A tile with its place: cells of `size` x `size` weights from a row and a column on. */
export interface PlacedTile {
  key: string;
  frame: Frame;
  row: number;
  column: number;
  size: number;
}

const VERTEX = `#version 300 es
uniform vec4 box;
out vec2 place;
void main() {
  vec2 corner = vec2(gl_VertexID & 1, gl_VertexID >> 1);
  place = corner;
  vec2 at = box.xy + corner * box.zw;
  gl_Position = vec4(at.x * 2.0 - 1.0, 1.0 - at.y * 2.0, 0.0, 1.0);
}`;

const FRAGMENT = `#version 300 es
precision highp float;
precision highp usampler2D;
uniform usampler2D cells;
uniform sampler2D palette;
uniform vec2 code;
uniform vec3 empty;
uniform vec4 range;
in vec2 place;
out vec4 color;
void main() {
  ivec2 size = textureSize(cells, 0);
  uint byte = texelFetch(cells, min(ivec2(place * vec2(size)), size - 1), 0).r;
  if (byte == 0u) { color = vec4(empty, 1.0); return; }
  float power = code.x + code.y * (float(byte) - 1.0);
  float share = range.x > 0.5 ? 1.0 + power / range.y : pow(10.0, power) / range.z;
  color = texture(palette, vec2((clamp(share, 0.0, 1.0) * 255.0 + 0.5) / 256.0, 0.5));
}`;

export class MapRenderer {
  private readonly gl: WebGL2RenderingContext;
  private readonly program: WebGLProgram;
  private readonly textures = new Map<string, { texture: WebGLTexture; frame: Frame }>();
  private readonly palette: WebGLTexture;
  private readonly places: Record<string, WebGLUniformLocation | null>;
  private lastPalette: Uint8Array | null = null;

  constructor(private readonly canvas: HTMLCanvasElement) {
    const gl = canvas.getContext("webgl2", { alpha: false, antialias: false, preserveDrawingBuffer: true });
    if (!gl) throw new Error("expected WebGL 2, which this browser does not have or has switched off");
    this.gl = gl;
    this.program = link(gl);
    const names = ["box", "cells", "palette", "code", "empty", "range"];
    this.places = Object.fromEntries(names.map((name) => [name, gl.getUniformLocation(this.program, name)]));
    this.palette = gl.createTexture();
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
  }

  /** Draws tiles from back to front, coarse ones first. */
  draw(view: Viewport, shape: MapShape, tiles: PlacedTile[], scale: ColorScale): void {
    const { gl, places } = this;
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.disable(gl.SCISSOR_TEST);
    gl.clearColor(...scale.empty, 1);
    gl.clear(gl.COLOR_BUFFER_BIT);
    this.clip(view, shape);
    gl.useProgram(this.program);
    this.bindPalette(scale.palette);
    gl.uniform1i(places.cells, 0);
    gl.uniform1i(places.palette, 1);
    gl.uniform3f(places.empty, ...scale.empty);
    gl.uniform4f(places.range, scale.log ? 1 : 0, scale.decades, scale.full, 0);
    for (const tile of tiles) this.drawTile(view, tile);
  }

  /** Forgets the texture of a tile that left the cache. */
  forget(key: string): void {
    const held = this.textures.get(key);
    if (held) this.gl.deleteTexture(held.texture);
    this.textures.delete(key);
  }

  close(): void {
    for (const key of [...this.textures.keys()]) this.forget(key);
    this.gl.deleteTexture(this.palette);
    this.gl.deleteProgram(this.program);
    this.gl.getExtension("WEBGL_lose_context")?.loseContext();
  }

  /** The last cells of a pyramid may cover less than their size: nothing is drawn outside of the map. */
  private clip(view: Viewport, shape: MapShape): void {
    const { gl, canvas } = this;
    const ratio = canvas.width / view.width;
    const right = Math.ceil((shape.columns - view.column) * view.zoom * ratio);
    const bottom = Math.ceil((shape.rows - view.row) * view.zoom * ratio);
    gl.enable(gl.SCISSOR_TEST);
    gl.scissor(0, Math.max(canvas.height - bottom, 0), Math.max(right, 0), Math.max(bottom, 0));
  }

  private drawTile(view: Viewport, tile: PlacedTile): void {
    const { gl, places } = this;
    const [height, width] = tile.frame.shape;
    gl.activeTexture(gl.TEXTURE0);
    gl.bindTexture(gl.TEXTURE_2D, this.textureOf(tile));
    gl.uniform2f(places.code, tile.frame.offset, tile.frame.scale);
    gl.uniform4f(
      places.box,
      ((tile.column - view.column) * view.zoom) / view.width,
      ((tile.row - view.row) * view.zoom) / view.height,
      (width * tile.size * view.zoom) / view.width,
      (height * tile.size * view.zoom) / view.height,
    );
    gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
  }

  private textureOf({ key, frame }: PlacedTile): WebGLTexture {
    const held = this.textures.get(key);
    if (held?.frame === frame) return held.texture;
    this.forget(key);
    const { gl } = this;
    const texture = gl.createTexture();
    gl.bindTexture(gl.TEXTURE_2D, texture);
    const [height, width] = frame.shape;
    const bytes = frame.data as Uint8Array;
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.R8UI, width, height, 0, gl.RED_INTEGER, gl.UNSIGNED_BYTE, bytes);
    nearest(gl);
    this.textures.set(key, { texture, frame });
    return texture;
  }

  private bindPalette(palette: Uint8Array): void {
    const { gl } = this;
    gl.activeTexture(gl.TEXTURE1);
    gl.bindTexture(gl.TEXTURE_2D, this.palette);
    if (palette === this.lastPalette) return;
    this.lastPalette = palette;
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, 256, 1, 0, gl.RGBA, gl.UNSIGNED_BYTE, palette);
    nearest(gl);
  }
}

function nearest(gl: WebGL2RenderingContext): void {
  for (const name of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_2D, name, gl.NEAREST);
  for (const name of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) gl.texParameteri(gl.TEXTURE_2D, name, gl.CLAMP_TO_EDGE);
}

function link(gl: WebGL2RenderingContext): WebGLProgram {
  const program = gl.createProgram();
  for (const [kind, source] of [
    [gl.VERTEX_SHADER, VERTEX],
    [gl.FRAGMENT_SHADER, FRAGMENT],
  ] as const) {
    const shader = gl.createShader(kind)!;
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader) ?? "shader");
    gl.attachShader(program, shader);
    gl.deleteShader(shader);
  }
  gl.linkProgram(program);
  return program;
}
