/** A map of at most 48 tokens as SVG squares, from exact weights. */
import { color, weightColor } from "../theme/colors";
import { theme } from "../theme/theme";
import type { Viewport } from "../webgl/pyramid";
import type { ColorScale } from "../webgl/renderer";
import type { ExactPart } from "./map-overlay";
import { shareOf } from "./map-scale";

interface Props {
  view: Viewport;
  exact: ExactPart;
  scale: ColorScale;
}

export function MapSquares({ view, exact, scale }: Props) {
  const { zoom } = view;
  const gap = zoom > 16 ? 1.5 : 0.5;
  const edge = color("edge", theme.value);
  return (
    <svg class="map-squares" width={view.width} height={view.height} aria-hidden="true">
      {Array.from(exact.weights, (weight, index) => {
        const row = Math.floor(index / exact.columns);
        const column = index % exact.columns;
        const box = {
          x: column * zoom + gap / 2,
          y: row * zoom + gap / 2,
          width: zoom - gap,
          height: zoom - gap,
          rx: Math.min(zoom / 8, 3),
        };
        if (weight > 0) return <rect key={index} {...box} fill={weightColor(shareOf(weight, scale), theme.value)} />;
        return <rect key={index} {...box} fill="none" stroke={edge} stroke-width={0.5} />;
      })}
    </svg>
  );
}
