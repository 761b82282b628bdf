// The page's texts: for states, reasons, numbers and times.

export const STEPS = ["Tossing", "Open", "Closed", "Rostered", "Proved", "Verified", "Committed", "Revealed", "Combined", "Concluded", "Done"];

export const STATES = {
  Tossing: "The servers toss the seed of the next round.",
  Open: "Clients submit.",
  Closed: "This server has closed and sent its list of submissions; it waits for the other server's list.",
  Closing: "The other server has closed; submissions that only it has can still arrive here.",
  Rostered: "Both servers agree on the roster; its submissions are evaluated.",
  Proved: "This server has sent its proof digests; it waits for the other server's.",
  Verified: "It is decided who is counted; this server computes its share of the sum.",
  Committed: "This server has sent its commitment; it waits for the other server's. The round can no longer be aborted.",
  Revealed: "This server has sent its share; it waits for the other server's.",
  Combined: "Both shares are known; the update is applied.",
  Concluded: "This server has sent its outcome; it waits for the other server's.",
  Done: "Both servers have computed the same outcome.",
  Aborted: "The round was aborted before anything was revealed.",
};

export const REASONS = {
  only_s0: "only S0 had the submission",
  only_s1: "only S1 had the submission",
  mismatch: "the servers had different submissions",
  proof: "the proof did not hold",
};

export function step(state) {
  if (state === "Closing") return STEPS.indexOf("Closed");
  return STEPS.indexOf(state);
}

export function count(number, thing) {
  return `${number.toLocaleString("en")} ${thing}${number === 1 ? "" : "s"}`;
}

export function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let power = 0;
  while (number >= 1024 && power < units.length - 1) { number /= 1024; power += 1; }
  return `${number.toFixed(number < 10 && power ? 1 : 0)} ${units[power]}`;
}

export function seconds(number) {
  if (number < 0.1) return `${(number * 1000).toFixed(0)} ms`;
  if (number < 10) return `${number.toFixed(2)} s`;
  if (number < 100) return `${number.toFixed(1)} s`;
  return clock(number);
}

export function clock(number) {
  const whole = Math.max(0, Math.ceil(number));
  const two = (part) => String(part).padStart(2, "0");
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

export function when(stamp) {
  const date = new Date(stamp * 1000);
  const today = date.toDateString() === new Date().toDateString();
  return today ? date.toLocaleTimeString() : date.toLocaleString();
}

export function reasons(excluded) {
  const parts = Object.entries(excluded).map(([reason, number]) => `${number} ${REASONS[reason] ?? reason}`);
  return parts.join(", ");
}
