/** The scale of colors: a strip with the numbers at its ends, and at the middle of a diverging one. */
interface ScaleLegendProps {
  /** The color at a share of the strip, 0 to 1. */
  color: (share: number) => string;
  texts: string[];
}

const STEPS = 32;

export function ScaleLegend({ color, texts }: ScaleLegendProps) {
  return (
    <div class="v-legend">
      <svg width="100%" height="10" viewBox={`0 0 ${STEPS} 1`} preserveAspectRatio="none" aria-hidden="true">
        {Array.from({ length: STEPS }, (_, step) => (
          <rect key={step} x={step} width={1.05} height={1} fill={color(step / (STEPS - 1))} />
        ))}
      </svg>
      <p>
        {texts.map((text, index) => (
          <span key={index}>{text}</span>
        ))}
      </p>
    </div>
  );
}
