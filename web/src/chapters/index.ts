/** The chapters of part one: attention from first principles. */
import "./styles/frame.css";
import "./styles/squares.css";
import "./styles/drawings.css";
import "./styles/controls.css";
import "./styles/words.css";
import "./styles/diagrams.css";
import "./styles/wide.css";
import type { ComponentType } from "preact";
import type { Chapter, ChapterProps, Strings } from "../types";
import { ConvolutionChapter, STEPS as convolutionSteps } from "./convolution";
import { DictionaryChapter, STEPS as dictionarySteps } from "./dictionary";
import { DotChapter, STEPS as dotSteps } from "./dot";
import { HeadsChapter, STEPS as headsSteps } from "./heads";
import { LinearChapter, STEPS as linearSteps } from "./linear";
import { MasksChapter, STEPS as masksSteps } from "./masks";
import { MatrixChapter, STEPS as matrixSteps } from "./matrix";
import { PermutationChapter, STEPS as permutationSteps } from "./permutation";
import { PositionsChapter, STEPS as positionsSteps } from "./positions";
import { QkvChapter, STEPS as qkvSteps } from "./qkv";
import { RecurrentChapter, STEPS as recurrentSteps } from "./recurrent";
import { ScaleChapter, STEPS as scaleSteps } from "./scale";
import { SoftmaxChapter, STEPS as softmaxSteps } from "./softmax";
import { TablesChapter, STEPS as tablesSteps } from "./tables";
import { TransformerChapter, STEPS as transformerSteps } from "./transformer";

const chapter = (id: string, steps: number, component: ComponentType<ChapterProps>): Chapter => ({
  id,
  title: (strings: Strings) => (strings as Record<string, string>)[`c.${id}.title`],
  steps,
  component,
});

/** The chapters of part one, in order. */
export const chapters: Chapter[] = [
  chapter("dot", dotSteps, DotChapter),
  chapter("softmax", softmaxSteps, SoftmaxChapter),
  chapter("scale", scaleSteps, ScaleChapter),
  chapter("dictionary", dictionarySteps, DictionaryChapter),
  chapter("qkv", qkvSteps, QkvChapter),
  chapter("matrix", matrixSteps, MatrixChapter),
  chapter("heads", headsSteps, HeadsChapter),
  chapter("permutation", permutationSteps, PermutationChapter),
  chapter("linear", linearSteps, LinearChapter),
  chapter("convolution", convolutionSteps, ConvolutionChapter),
  chapter("masks", masksSteps, MasksChapter),
  chapter("positions", positionsSteps, PositionsChapter),
  chapter("recurrent", recurrentSteps, RecurrentChapter),
  chapter("transformer", transformerSteps, TransformerChapter),
  chapter("tables", tablesSteps, TablesChapter),
];
