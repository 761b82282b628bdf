// Numbers and moments as text. Rules: a column has one unit, and as many decimals as its largest value deserves; a moment
// is shown in the operator's time zone, which is named, and in UTC on hover.

const UNITS = [["ms", 0.001, 1], ["s", 1, 600], ["min", 60, 36000], ["h", 3600, Infinity]];

// The unit of a column of seconds: { name, of(seconds) }.
export function unit(column) {
  const most = Math.max(0, ...column);
  const [name, size] = most === 0 ? UNITS[1] : UNITS.find(([, , limit]) => most < limit);
  const decimals = most === 0 || name === "ms" || most / size >= 100 ? 0 : most / size >= 10 ? 1 : 2;
  return { name, of: (seconds) => number(seconds / size, decimals) };
}

export function number(value, decimals = 0) {
  return value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

export function count(many, thing) {
  return `${number(many)} ${thing}${many === 1 ? "" : "s"}`;
}

export function seconds(value) {
  const { name, of } = unit([value]);
  return `${of(value)} ${name}`;
}

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let power = 0;
  while (value >= 1024 && power < units.length - 1) { value /= 1024; power += 1; }
  return `${value.toFixed(value < 10 && power ? 1 : 0)} ${units[power]}`;
}

// Hours, minutes and seconds: 1:03:20.
export function clock(value) {
  const whole = Math.max(0, Math.ceil(value));
  const two = (part) => String(part).padStart(2, "0");
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

export function zone(date = new Date()) {
  return new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" }).formatToParts(date).find(({ type }) => type === "timeZoneName").value;
}

// A <time>, with the date unless it is today's, and with the zone unless it stands above.
export function moment(stamp, withZone = true) {
  const date = new Date(stamp * 1000);
  const local = date.toLocaleString("sv-SE");
  const shown = date.toDateString() === new Date().toDateString() ? local.slice(11) : local;
  const made = document.createElement("time");
  made.dateTime = date.toISOString();
  made.title = `${made.dateTime.slice(0, 19).replace("T", " ")} UTC`;
  made.textContent = withZone ? `${shown} ${zone(date)}` : shown;
  return made;
}
