// The page's words: for steps, states and reasons. Rule: plain words first; the protocol's own only where they are asked for.

export const STEPS = {
  ssa: {
    name: "secure aggregation",
    collect: "Clients send their submissions.",
    compute: "Both servers agree on who is counted, and add up. No further submission is taken.",
    done: "The sum is in the model.",
    idle: ["clients submit", "servers add up", "model updated"],
  },
  psr: {
    name: "private retrieval",
    collect: "Clients retrieve rows. Nothing is submitted in this round.",
    compute: "Both servers close the round.",
    done: "The round is over; the model stays as it was.",
    idle: ["clients retrieve", "servers close", "model as before"],
  },
  psu: {
    name: "private union",
    collect: "Clients send their rows, hidden.",
    compute: "Both servers find the union of all clients' rows.",
    done: "The union is found; the rounds after this one work on it.",
    idle: ["clients send rows", "servers unite them", "union known"],
  },
};

export const STATES = {
  Open: "Clients submit, or retrieve.",
  Closed: "This server has closed, and said so; it waits for the other server.",
  Closing: "The other server has closed; submissions that only it has can still arrive here.",
  Rostered: "Both servers agree on the roster; its submissions are evaluated.",
  Proved: "This server has sent its proof digests; it waits for the other server's.",
  Verified: "It is decided who is counted; this server computes its share of the sum.",
  Tallied: "This server has sent its share of the counts of contributors; it waits for the other server's.",
  Chosen: "It is decided which rows are opened; this server computes its share of their sum.",
  Committed: "This server has sent its commitment; it waits for the other server's. The round can no longer be aborted.",
  Revealed: "This server has sent its share; it waits for the other server's.",
  Combined: "Both shares are known; the update is applied.",
  Concluded: "This server has sent its outcome; it waits for the other server's.",
  Done: "Both servers have computed the same outcome.",
  Differed: "The task's own rule gave the servers different outcomes; both keep the model that they had.",
  Aborted: "The round was aborted before anything was revealed.",
};

const LONG = ["Open", "Closed", "Rostered", "Proved", "Verified", "Committed", "Revealed", "Combined", "Concluded", "Done"];
export const PATHS = { ssa: LONG, psu: LONG, psr: ["Open", "Closed", "Concluded", "Done"] };

export const REASONS = {
  only_s0: "only S0 had the submission",
  only_s1: "only S1 had the submission",
  mismatch: "the servers had different submissions",
  proof: "the proof did not hold",
  bound: "the update was not proved to be within the bound",
};

export const TIMES = {
  collecting: "collecting",
  computing: "computing",
  waiting: "waiting for",
  interrupted: "interrupted by a restart or a full disk",
};

export const ENDED = { done: "done", aborted: "aborted", refused: "sum refused" };

export function protocol(name) {
  return STEPS[name] ?? { ...STEPS.ssa, name };
}

export function reasons(excluded) {
  return Object.entries(excluded).map(([reason, number]) => `${number} ${REASONS[reason] ?? reason}`).join(", ");
}

// The other server's name.
export const peerOf = ({ server }) => (server === "S0" ? "S1" : "S0");

// Which of its steps a round is at.
export const stepOf = ({ activity }) => (activity === "collecting" ? "collect" : "compute");
