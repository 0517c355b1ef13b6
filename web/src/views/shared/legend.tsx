/** The scale of colors: a strip with the numbers at its ends, and at the middle of a diverging one. */
interface ScaleLegendProps {
  /** The color at a share of the strip, 0 to 1. */
  color: (share: number) => string;
  texts: string[];
}

const STEPS = 16;

export function ScaleLegend({ color, texts }: ScaleLegendProps) {
  const stops = Array.from({ length: STEPS + 1 }, (_, step) => color(step / STEPS));
  return (
    <div class="v-legend">
      <div aria-hidden="true" style={{ background: `linear-gradient(90deg, ${stops.join(", ")})` }} />
      <p>
        {texts.map((text, index) => (
          <span key={index}>{text}</span>
        ))}
      </p>
    </div>
  );
}
