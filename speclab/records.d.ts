// Records as a trace writes them (trace/records.py says what each field means), and the columns of a
// node that the page shows (trace/columns.py). Written by scripts/write_types.py.

interface Adaptation {
  kind: string;
  values: Values;
  before: Values;
  after: Values;
}

interface CacheRecord {
  name: string;
  before: number;
  written: number;
  kept: number[];
  moved: [number, number][];
  after: number;
  committed: number;
  capacity: number;
  slot_bytes: number;
}

type CandidateSampling =
  "deterministic" | "independent draws" | "draws without replacement" | "a block of draws";

interface Columns {
  token: number[];
  parent: number[];
  log_prob: (number | string)[];
  source: string[];
  candidate_sampling: CandidateSampling;
}

interface Counts {
  iterations: number;
  committed: number;
  drafted: number;
  accepted: number;
  longest_path: number;
  target_calls: number;
  draft_calls: number;
  seconds: number;
  looked: number;
}

interface ExtraRow {
  token: number;
  depth: number;
  sees: number[];
  prefix_seen: number;
  target_choice: number;
}

interface Finding {
  iteration: number;
  node: number | null;
  kind: string;
  sentence: string;
  fault: string;
  count: number;
  text_is_right: boolean;
}

interface NodeColumns {
  node?: number[];
  token?: number[];
  depth?: number[];
  parent?: number[];
  source?: string[];
  draft_prob?: (number | null)[];
  path_prob?: (number | null)[];
  target_prob?: (number | null)[];
  target_choice?: number[];
  verdict?: string[];
}

interface NodeRecord {
  index: number;
  token: number;
  draft_prob: number;
  path_prob: number;
  target_prob: number | null;
  target_choice: number;
  verdict: "root" | "accepted" | "rejected" | "not reached";
  kv_slot: number;
  entropy: number;
  choice_prob: number | null;
  beyond_draft: boolean;
  target_top: [number, number][];
  draft_top: [number, number][];
}

interface PromptMessage {
  role: string;
  content: string;
  start: number;
  stop: number;
}

interface Proposal {
  name: string;
  tree: Columns;
  confidence: number;
  score: number;
  chosen: boolean;
}

interface Residual {
  node: number | null;
  tokens: ResidualToken[];
}

interface ResidualToken {
  token: number;
  residual: number;
  target: number;
  draft: number | null;
}

interface Step {
  index: number;
  prefix_length: number;
  tree: Columns;
  nodes: NodeRecord[];
  accepted: number[];
  committed: number[];
  bonus: number | null;
  root_choice: number | null;
  settings: Values;
  events: TreeEvent[];
  caches: CacheRecord[];
  seconds: Record<string, number>;
  adaptation: Adaptation;
  counts: Counts;
  mask: string[];
  prefix_seen: number[];
  texts: Record<string, string>;
  note: string;
  extra: ExtraRow[];
  rule: string;
  trials: Trial[];
  residual: Residual | null;
  proposals: Proposal[];
  paths: number[][];
  position: number[];
  hidden_prefix: [number, number, number][];
  rows: number[];
  missing: string[];
  not_numbers: number[];
  request: string;
  batch: string;
  findings: Finding[];
  plain: [number, number][][];
  gaps: ([number, number | null] | null)[];
}

interface Trace {
  prompt_ids: number[];
  first_token: number | null;
  steps: Step[];
  settings: Values;
  models: Values;
  texts: Record<string, string>;
  prefill_seconds: number;
  prefill_calls: number;
  finished: string;
  messages: PromptMessage[];
  version: number;
}

interface TreeEvent {
  kind: string;
  node: number | null;
  values: Values;
}

interface Trial {
  node: number;
  target: number;
  against: number;
  accepted: boolean;
  block: number | null;
}
