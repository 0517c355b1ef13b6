/** A map of any length on a WebGL canvas, made of tiles. */
import { useEffect, useRef, useState } from "preact/hooks";
import { strings } from "../i18n";
import type { AttentionInfo, Statistic, TraceInfo, Transport } from "../types";
import { MapModel, type PoolChoice } from "../webgl/map-model";
import type { MapShape, Viewport } from "../webgl/pyramid";
import type { ColorScale } from "../webgl/renderer";

export interface MapState {
  statistic: Statistic;
  loading: boolean;
  failure: string;
}

interface Props {
  trace: TraceInfo;
  transport: Transport;
  attention: AttentionInfo;
  head: number | "mean";
  shape: MapShape;
  view: Viewport;
  scale: ColorScale;
  pool: PoolChoice;
  onState: (state: MapState) => void;
}

export function MapCanvas({ trace, transport, attention, head, shape, view, scale, pool, onState }: Props) {
  const s = strings();
  const canvas = useRef<HTMLCanvasElement>(null);
  const model = useRef<MapModel | null>(null);
  const [failure, setFailure] = useState("");
  const [generation, setGeneration] = useState(0);
  useEffect(() => {
    const element = canvas.current!;
    const onLost = () => setGeneration((count) => count + 1);
    try {
      const made: MapModel = new MapModel({
        canvas: element,
        shape,
        load: ({ level, row, column, pool }, signal) =>
          transport.frame(
            `traces/${encodeURIComponent(trace.id)}/tile`,
            { attention: attention.path, head, level, row, column, pool },
            signal,
          ),
        onDraw: () => onState({ statistic: made.statistic, loading: made.loading, failure: made.failure }),
      });
      model.current = made;
      element.addEventListener("webglcontextlost", onLost); // a canvas that lost its context is replaced
      return () => {
        element.removeEventListener("webglcontextlost", onLost);
        made.close();
      };
    } catch (error) {
      console.warn(error);
      setFailure(s.map_no_webgl);
    }
  }, [generation]);
  const ratio = Math.min(devicePixelRatio, 2);
  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    element.width = Math.round(view.width * ratio);
    element.height = Math.round(view.height * ratio);
  }, [view.width, view.height, ratio, generation]);
  useEffect(
    () => model.current?.show(view, scale, pool),
    [view, scale.log, scale.decades, scale.full, scale.palette, pool, generation],
  );
  return (
    <>
      <canvas
        key={generation}
        ref={canvas}
        class="map-canvas"
        style={{ width: `${view.width}px`, height: `${view.height}px` }}
        role="presentation"
      />
      {failure && <p class="failure map-failure">{failure}</p>}
    </>
  );
}
