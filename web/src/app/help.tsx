/** The list of keys. */
import { useEffect, useRef } from "preact/hooks";
import { strings } from "../i18n";
import { Icon } from "../parts/Icon";

export function Help({ onClose }: { onClose: () => void }) {
  const s = strings();
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const rows = [
    ["Space", s.keys_space],
    ["← →", s.keys_steps],
    ["n · p", s.keys_chapters],
    ["Enter", s.keys_enter],
    ["+ · − · 0", s.keys_zoom],
    ["Esc", s.keys_escape],
    ["Ctrl+Z · Ctrl+Shift+Z", s.keys_undo],
    ["T", s.keys_theme],
    ["?", s.keys_help],
  ];
  return (
    <dialog
      ref={dialog}
      class="dialog"
      aria-label={s.keys_title}
      onClose={onClose}
      onClick={(event) => event.target === dialog.current && onClose()}
    >
      <header>
        <h2>{s.keys_title}</h2>
        <button type="button" class="icon-button" aria-label={s.close} onClick={onClose}>
          <Icon name="close" />
        </button>
      </header>
      <dl class="keys">
        {rows.map(([key, text]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
    </dialog>
  );
}
