/** Cross-attention of an encoder-decoder: which source tokens each target token is read from. */
import type { ViewProps } from "../types";
import { HeadView } from "./head";

export const Alignment = (props: ViewProps) => (
  <HeadView {...props} shown={props.trace.attentions.filter(({ kind }) => kind === "cross")} />
);
