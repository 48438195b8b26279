// What the scripts hand to each other, for `tsc`: messages (views/messages.json), the page's state,
// and pictures. Records are in records.d.ts.

// ---- records

type Texts = Record<number | string, string>;
type TokenProb = [token: number, prob: number];
/** Tokens and their probabilities, best first. */
type Top = TokenProb[];
type Values = Record<string, any>;

/** An event of one of the tree's nodes. */
interface NodeEvent extends TreeEvent {
  node: number;
}

interface Step {
  /** Columns of the nodes that are not just fields of the records; a page that decodes has none. */
  columns?: NodeColumns;
}

/** A column of the table of nodes. */
interface Column {
  name: keyof NodeColumns;
  head: string;
  format: string;
}

/** A run without its steps (views/run_data.py, run_header). */
interface Header extends Pick<
  Trace,
  "prompt_ids" | "first_token" | "texts" | "settings" | "models" | "finished"
> {
  prompt_parts: [role: string, start: number, stop: number][];
}

/** `open`: the commit is still to come. */
interface DrawnCache extends CacheRecord {
  open?: boolean;
}

/** A strategy's settings, with its name as `strategy`. */
type Settings = Record<string, any>;

// ---- an iteration's phases

/** `level`: null is the end of the phase. */
interface Position {
  phase: string;
  level: number | null;
}

interface Decision {
  node: number;
  choice: number;
  candidates: number[];
  winner: number | null;
}

/** A tree and the target's choices: which child of a node has its choice, from 1; 0: none, -1: not
 *  recorded. `drafted`: its root was drafted; `same`: and the target chose it. `ended`: tokens committed
 *  before the text ended. */
interface Matched {
  parent: number[];
  children: number[][];
  ranks: number[];
  drafted: boolean;
  same: boolean;
  ended?: number;
}

interface Shape {
  depth: number[];
  children: number[][];
  pathProb: number[];
  prob: number[];
}

// ---- pictures

interface Words {
  numbers?: { name: string; part: string; whole: string; format: string; definition: string }[];
  [group: string]: any;
}

interface Looks {
  committed: string[];
  tree: { bend: number[]; [name: string]: any };
  mask: { every: number[]; size: Record<string, number>; [name: string]: any };
  sliders: {
    counts: number[];
    small: number[];
    groups: string[];
    sampling: string[];
    first: number;
  };
  [name: string]: any;
}

interface Table {
  head: string[];
  rows: (string | number)[][];
  sentence: string;
}

/** A figure as plotly takes it. */
interface Figure {
  data: Values[];
  layout: Values;
}

/** A row of the tree, "own" for the target's token, `+3` for a stub, `new 5` in a what-if. */
type NodeId = any;
/** A name of LOOKS.nodes for each node; null: not drawn yet. */
type Kinds = Record<string, string | null>;

interface GraphNode {
  id: NodeId;
  token: number;
  label: string;
  parent: NodeId;
  depth: number;
  pathProb: number;
  targetProb: number;
  choice: number;
  accepted: boolean;
  below: NodeId[];
  folded?: NodeId[];
}

/** Nodes by id, in the order in which they are drawn. */
interface Graph extends Map<NodeId, GraphNode> {
  get(id: NodeId): GraphNode;
}

/** A node or a stub as it is drawn; `parent`: an index, -1 for none. */
interface Entry {
  id: NodeId;
  parent: number;
  depth: number;
  row: number;
  label: string;
  size: number;
  border: number;
  choice: boolean;
  below: NodeId[];
  folded?: NodeId[];
  kind?: string | null;
}

/** A point on the axes of a figure. */
interface Point {
  x: number;
  y: number;
}

/** The box of a node on the axes of its tree. */
interface Hit {
  id: NodeId;
  x0: number;
  x1: number;
  y0: number;
  y1: number;
}

/** Where the columns of a tree stand, and the characters of their labels. */
interface Places {
  x: number[];
  chars: number[];
}

/** A slot of a cache that has a sign. */
interface Slot {
  x: number;
  y: number;
  sign: string;
  tip: string;
  strong: boolean;
  node: number | null;
}

/** The strips of the caches as they are drawn. */
interface Strips {
  /** Slots in a row. */
  across: number;
  cells: number[][];
  labels: [number, string][];
  notes: Values[];
  signs: Slot[];
  /** Where each kept slot is during the pass and after the commit. */
  slides: [number, number][][];
}

interface WhatIf {
  tree: Columns;
  recorded: (number | null)[];
  accepted: number[] | null;
  bonus: number | null;
  unknown: number[];
  settled: boolean;
  texts: Texts;
  by: string;
  sentence?: string;
}

/** A step as its mask is drawn. */
interface Masked extends Omit<Step, "mask" | "nodes" | "extra"> {
  /** Null in a preview, whose mask is the expected one. */
  mask: string[] | null;
  nodes: any[];
  extra: (ExtraRow & { group?: number; part?: number[] })[];
  /** Of each row its node in the tree that is drawn, if these are others than the step's. */
  names?: NodeId[];
}

/** What a figure of a tree draws. */
interface Drawing {
  /** The mask of a tree that is not the step's. */
  masked?: Masked;
  graph: Graph;
  kinds: Kinds;
  /** Lines below the labels, by node. */
  second: Record<string, string>;
  sentence: string;
  /** What a preview says in place of the story. */
  says?: string;
  /** Never folded. */
  kept: NodeId[];
  rings: Set<NodeId>;
  /** Whether the target's answers are not known yet. */
  early: boolean;
}

interface TreeOptions {
  width?: number;
  /** The most: the figure takes what it needs. */
  height?: number;
  selected?: NodeId | null;
  /** Never folded. */
  first?: NodeId[];
  /** Whether the figure takes all of its height. */
  fill?: boolean;
}

/** A node of a tree of another tool. */
interface OtherNode {
  id: NodeId;
  parent: NodeId;
  text: string;
  path_prob: number;
  kind: string;
  accepted: boolean;
}

/** `kind`: prompt, role, template, first, accepted, bonus, corrected, rejected. */
interface Piece {
  text: string;
  kind: string;
  iteration: number;
  token: number;
  title: string;
  node: number | null;
}

// ---- the page

interface Wanted {
  models?: Values | null;
  strategy: { name: string; settings: Settings };
  session?: Values;
  prompt?: string;
  chat?: boolean;
}

interface Failure {
  where: string;
  sentence: string;
}

interface Status {
  busy?: string | null;
  since?: number;
  began?: number;
  progress?: number | null;
  message?: string | null;
  error?: Failure | null;
  finished?: string;
  can_step?: boolean;
  live?: boolean;
  wanted?: Wanted;
  pending?: string[];
  new_run?: boolean;
  missing?: Record<string, string>;
  by_hand?: boolean;
  guess?: boolean;
}

/** A setting: its JSON schema, with `x-symbol`, `x-measure` and `x-small`. */
interface Field {
  anyOf?: Field[];
  enum?: any[];
  [name: string]: any;
}

interface OfferedStrategy {
  name: string;
  group: string;
  doc: string;
  schema: { properties: Record<string, Field> };
  presets: { name: string; settings: Settings }[];
  settings?: Settings;
  /** Groups of settings whose values must not decrease. */
  ascending: string[][];
}

interface Catalog {
  strategies: OfferedStrategy[];
  models: Values[];
  prompts: { name: string; kind: string; text: string; chat: boolean }[];
  devices: Values[];
  current: string;
  note?: string;
}

interface Run {
  number: number;
  name: string;
  /** Iterations shared with the run that it was forked from; else -1. */
  at: number;
  iterations: number;
  shown: boolean;
}

interface Diff {
  passes: number[][][];
  names: string[];
  text: number | null;
  answers: number | null;
  proposals: number | null;
  sentence: string;
}

interface Curve {
  name: string;
  points: Values[];
  plain: Values;
  here: any;
}

/** `on`: true, or for how many more iterations. */
interface Guess {
  on: boolean | number;
  tries: number;
  right: number;
  sentence: string;
  /** Iterations that were guessed. */
  done: number[];
}

/** `tick`: index into the positions of the iteration; `veiled`: index of one whose outcome is hidden.
 *  What features add is there with them only. */
interface State {
  header: Header | null;
  run: number | null;
  steps: Step[];
  cursor: number;
  tick: number;
  node: NodeId;
  tab: string;
  status: Status;
  catalog: Partial<Catalog> | null;
  veiled: number | null;
  gone: string;
  preview: { index: number; what_if: WhatIf | null } | null;
  curve?: Curve;
  pinned?: { step: Step | null };
  pace?: { strategy?: string | null; times?: number | null };
  /** Whether the tree shows what it was before its settings were changed. */
  against?: boolean;
  compared?: { rows: Values[] };
  diffed?: { diff: Diff | null };
  runs?: Run[];
  guess?: Guess;
  link?: { address: string; sentence: string; rows?: string[] };
  address?: { page: string };
  form: boolean;
  /** Whether a node was clicked. */
  picked: boolean;
  /** Whether one of the ways on below the story was taken. */
  used: boolean;
  rows: boolean;
  marks: boolean;
  /** For a lecture room. */
  large: boolean;
}

/** What a page shows: `i` is the iteration, from 1; `guess`: its outcome is hidden. */
interface Place extends Position {
  i: number;
  node: NodeId;
  tab: string;
  guess: boolean;
}

/** When a run stops; `kind`: a name of WORDS.until. */
interface Until {
  kind: string;
  value: string | number;
}

/** What the page tells the kernel: the commands of the lab, written by scripts/write_types.py. */
type Message =
  | { do: "add"; node: number; token?: number | null; text?: string | null }
  | { do: "check" }
  | { do: "close"; run: number }
  | { do: "compare"; names: string[] }
  | { do: "curve"; name: string }
  | { do: "diff"; run: number }
  | { do: "guess"; on: boolean | number }
  | { do: "hello" }
  | { do: "link"; text: string }
  | { do: "open"; name: string; data: string }
  | { do: "phones"; text: string }
  | { do: "picture"; cursor: number; images: Values[] }
  | { do: "plotly" }
  | { do: "prune"; node: number }
  | { do: "redo" }
  | { do: "reset" }
  | { do: "run"; until: Until }
  | { do: "save"; what: string }
  | {
      do: "shown";
      cursor: number;
      phase: string;
      tab: string;
      level?: number | null;
      node?: number | string | null;
      moves?: number | null;
    }
  | { do: "step"; start?: string }
  | { do: "stop" }
  | { do: "switch"; run: number }
  | { do: "undo" }
  | { do: "verify" }
  | {
      do: "want";
      models?: Values | null;
      strategy?: Wanted["strategy"];
      prompt?: string;
      session?: Values;
    };

/** What the kernel tells the page: the messages of the lab (lab/_messages.py) and of its features,
 *  written by scripts/write_types.py. */
type KernelEvent =
  | { type: "address"; page: string }
  | {
      type: "catalog";
      strategies: OfferedStrategy[];
      models: Values[];
      prompts: Catalog["prompts"];
      devices: Values[];
      current: string;
    }
  | { type: "compared"; rows: Values[] }
  | {
      type: "curve";
      name?: string | null;
      values?: Values[] | null;
      points?: Values[] | null;
      plain?: Values | null;
      here?: Values | null;
    }
  | { type: "diffed"; diff?: Diff | null }
  | { type: "file"; name: string; mime: string; data: string }
  | { type: "pace"; strategy?: string | null; times?: number | null }
  | { type: "phones"; text: string; rows: string[] }
  | { type: "pinned"; step?: Step | null }
  | { type: "preview"; index?: number | null; what_if?: WhatIf | null }
  | { type: "run"; id: number; header: Header; keep: number; steps: Step[]; cursor: number }
  | { type: "runs"; runs: Run[] }
  | {
      type: "show";
      cursor: number;
      phase: string;
      level?: number | null;
      node?: number | string | null;
      tab?: string | null;
      moves: number;
    }
  | {
      type: "status";
      busy?: string | null;
      since?: number | null;
      progress?: number | null;
      message?: string | null;
      error?: Failure | null;
      finished?: string | null;
      can_step?: boolean | null;
      live?: boolean | null;
      wanted?: Wanted;
      pending?: string[] | null;
      new_run?: boolean | null;
      missing?: Record<string, string>;
      by_hand?: boolean | null;
      guess?: boolean | null;
    }
  | { type: "step"; index: number; step: Step };

/** What the page hears: from the kernel, from its host, and from its own controls. */
type PageEvent =
  | KernelEvent
  | { type: "gone"; sentence: string }
  | { type: "go"; cursor: number; tick?: number }
  | { type: "along"; by: number }
  | { type: "phase"; name: string }
  | { type: "select"; node: NodeId }
  | { type: "tab"; name: string }
  | { type: "next" }
  | { type: "guessing"; on: boolean | number }
  | { type: "set"; values: Partial<State> };

/** What shows the page; `kind`: "kernel", "worker" (a tab that decodes), "none" (a record). */
interface Host {
  kind: string;
  send(message: Message): void;
  on(handler: (event: any) => void): void;
  keys: HTMLElement | Document;
}

/** What the controls get; `live`: more can be decoded. */
interface Context {
  state: () => State;
  dispatch: (event: PageEvent) => void;
  send: (message: Message) => void;
  live: boolean;
  kernel: boolean;
}

/** What a feature adds to the page (views/page/features.js). */
interface Feature {
  name: string;
  /** Its part of the state, at first. */
  state?: Partial<State>;
  /** Answers an event of its own; null for those of others. */
  reduce?(state: State, event: PageEvent): [State, Message[]] | null;
  /** Another tree in place of the whole iteration's. */
  overlay?(state: State, step: Step): Drawing | null;
  /** Changes what a message of the kernel has made of the state. */
  after?(state: State, message: PageEvent, before: State): State;
  /** What it is on a page. */
  page?(context: Context): Partial<FeaturePage>;
}

/** The methods that a page calls; each may be missing. */
interface FeaturePage {
  name: string;
  /** Whether it has a tab, labelled WORDS.tabs[name]. */
  tab?: boolean;
  /** Whether its tab is in the menu only. */
  hidden?(state: State): boolean;
  /** What its tab depends on; it is drawn again when one of these changes. */
  watched?(state: State): any[];
  /** What it shows in a tab, its own or another. `step`: null while its outcome is veiled. */
  parts?(tab: string, state: State, shown: { step: Step | null; width: number }): any[];
  /** Entries of the menu. */
  entries?(): HTMLElement[];
  /** Brings its own elements up to date. */
  update?(state: State, plot: Plot): void;
  /** A row above the timeline. */
  above?(state: State): HTMLElement | null;
  /** A figure beside the tree. */
  second?(step: Step, width: number): Figure | null;
  /** What it adds to a setting that has a slider. */
  cell?(name: string, values: any[]): SettingCell;
  /** The settings were drawn: their cells, their values, and the iteration that they decoded. */
  settled?(cells: Record<string, any>, values: Values, step: Step): void;
  /** What it says at the end of the story, in place of what was kept. */
  story?(state: State): string[];
  besideStory?(state: State): HTMLElement[];
  /** A way on that is offered until one was taken. */
  next?(): Invitation;
  /** What it says after the score. */
  score?(state: State): string[];
  /** The page was built in this element, or is gone. */
  mounted?(element: HTMLElement, Plotly: any): void;
  ended?(): void;
  /** The page has sent a message, or heard one. */
  sent?(message: Message): void;
  heard?(event: PageEvent): void;
}

interface Invitation {
  label: string;
  go(): void;
}

type FeatureMethod = Exclude<keyof FeaturePage, "name" | "tab">;

interface SettingCell {
  elements: HTMLElement[];
  update(state: State, plot: Plot): void;
}

/** The features on one page; `all` calls a method of each that has it. */
interface Features {
  pages: FeaturePage[];
  all(method: FeatureMethod, ...values: any[]): any[];
}

/** Draws a figure in a place if the key changed. */
type Plot = (place: any, key: any[], figureOf: () => Figure) => void;

interface Window {
  Plotly: any;
}

/** For the console, of the page that was mounted last: `speclab.state()`. */
declare var speclab: Context;
/** plotly.js, once for all labs of a browser page. */
declare var speclabPlotly: any;

// ---- the live page

/** A tree under construction, breadth-first. */
interface Growing {
  token: number[];
  parent: number[];
  depth: number[];
  logProb: number[];
  path: number[];
}

/** A strategy's settings as those of Algorithm 1; `names`: what the strategy calls them. */
interface Rules {
  node_budget: number;
  max_depth: number;
  branches: [fewest: number, some: number, most: number];
  best: number;
  names: Record<string, string>;
  [threshold: string]: any;
}

/** Of each node that ran: the draft's most probable next tokens. */
type Tops = Map<number, Top>;
/** Of each node that ran: the slots of its text, of its ancestors, and its own. */
type Rows = Map<number, number[]>;

interface Draft {
  tree: Columns;
  tops: Tops;
  events?: TreeEvent[];
  rows?: Rows;
}

interface TokenizerFile {
  model: { vocab: Record<string, number>; merges: [string, string][] };
  added_tokens: { id: number; content: string }[];
}

interface Models {
  target: import("./live/forward.js").Model;
  draft: import("./live/forward.js").Model;
  tokenizer: import("./live/tokenizer.js").Tokenizer;
}

/** A row of a tree that is edited by hand; `recorded`: the same node of the iteration. */
interface EditedRow {
  token: number;
  parent: number;
  log_prob: number | string;
  source: string;
  recorded: number | null;
}

/** What the worker holds. */
interface Lab {
  wanted: Wanted;
  applied: Wanted | null;
  models: Models | null;
  session: import("./live/decode.js").Session | null;
  cursor: number;
  number: number;
  edits: EditedRow[][];
  busy: boolean;
  stopped: boolean;
  rested: number;
}

/** Of page.js.gz, which start.js fetches. */
declare function mount(
  element: HTMLElement,
  host: Host,
  Plotly: any
): { handle(event: PageEvent): void; destroy(): void };

/** What the worker begins with: the folder's address, the page's query, and what export.py wrote. */
declare const BASE: string;
declare const QUERY: string;
/** Whether the address has a run to show. */
declare const SHOWN: boolean;
declare const LAB: {
  catalog: Catalog;
  files: { name: string; size: number; sha256: string }[];
  configs: Values[];
  models: Values;
  wanted: Wanted;
};
declare class FileReaderSync {
  readAsDataURL(blob: Blob): string;
}
