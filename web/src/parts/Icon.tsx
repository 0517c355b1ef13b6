/** Icons, drawn on a grid of 16. */
const PATHS = {
  play: "M4.5 2.8v10.4l8.6-5.2z",
  pause: "M4 3h2.8v10H4zM9.2 3H12v10H9.2z",
  back: "M11 3.2v9.6L4.8 8z M3 3.2h1.6v9.6H3z",
  forward: "M5 3.2v9.6L11.2 8z M11.4 3.2H13v9.6h-1.6z",
  undo: "M6.2 2.6 2.4 6l3.8 3.4V7.1h3.1a2.2 2.2 0 0 1 0 4.5H5v1.8h4.3a4 4 0 0 0 0-8.1H6.2z",
  redo: "M9.8 2.6 13.6 6 9.8 9.4V7.1H6.7a2.2 2.2 0 0 0 0 4.5H11v1.8H6.7a4 4 0 0 1 0-8.1h3.1z",
  auto: "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8zm0 1.6v9.2a4.6 4.6 0 0 1 0-9.2z",
  light:
    "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM7.3 1h1.4v2.4H7.3zM7.3 12.6h1.4V15H7.3zM1 7.3h2.4v1.4H1zM12.6 7.3H15v1.4h-2.4zM3.5 2.5l1.7 1.7-1 1-1.7-1.7zM11.8 10.8l1.7 1.7-1 1-1.7-1.7zM12.5 2.5l1 1-1.7 1.7-1-1zM4.2 10.8l1 1-1.7 1.7-1-1z",
  dark: "M6.4 1.9a6.3 6.3 0 1 0 7.7 7.7A5.2 5.2 0 0 1 6.4 1.9z",
  close: "M3.6 2.5 8 6.9l4.4-4.4 1.1 1.1L9.1 8l4.4 4.4-1.1 1.1L8 9.1l-4.4 4.4-1.1-1.1L6.9 8 2.5 3.6z",
  menu: "M2 3.4h12V5H2zM2 7.2h12v1.6H2zM2 11h12v1.6H2z",
  export: "M8 1.5 12 5.6l-1.1 1.1L8.8 4.6v5.6H7.2V4.6L5.1 6.7 4 5.6zM2.5 9.5h1.6v3.1h7.8V9.5h1.6v4.7h-11z",
  help: "M1.5 4h13v8.4h-13zM3 5.5v5.4h10V5.5zM4 6.4h1.4v1.2H4zM6.2 6.4h1.4v1.2H6.2zM8.4 6.4h1.4v1.2H8.4zM10.6 6.4H12v1.2h-1.4zM5 8.8h6V10H5z",
  lock: "M5 7V5a3 3 0 0 1 6 0v2h1v6.5H4V7zm1.5 0h3V5a1.5 1.5 0 0 0-3 0z",
  plus: "M7.2 3h1.6v4.2H13v1.6H8.8V13H7.2V8.8H3V7.2h4.2z",
  minus: "M3 7.2h10v1.6H3z",
  fit: "M2 2h4.5v1.6h-2L7 6.1 6.1 7 3.6 4.5v2H2zM14 14H9.5v-1.6h2L9 9.9l.9-.9 2.5 2.5v-2H14z",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} fill="currentColor" />
    </svg>
  );
}
