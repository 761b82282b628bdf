// Which task the page is of. Rules: the address names it (?task=NAME), so that it can be kept as a bookmark; a server with
// one task shows no choice, and is asked without a name.

import { at, make } from "./dom.js";

const PAUSE = 5000;

let chosen = "";
let last = 0;

// A route of the task that the page is of.
export function route(path, more = {}) {
  const query = new URLSearchParams({ ...more, ...(chosen ? { task: chosen } : {}) }).toString();
  return query ? `${path}?${query}` : path;
}

// Chooses the task that the address names, or the first one; called again when a task may have come or gone.
export async function chooseTask(pause = 0) {
  if (Date.now() - last < pause) return;
  last = Date.now();
  const answer = await fetch("tasks");
  if (!answer.ok) throw new Error(`tasks: ${answer.status}`);
  const { tasks } = await answer.json();
  const wished = new URLSearchParams(location.search).get("task");
  chosen = wished ?? (tasks.length > 1 ? tasks[0].name : "");
  at("tasks").hidden = tasks.length <= 1 && !wished;
  at("task").hidden = tasks.length > 1;
  draw(wished !== null && !tasks.some(({ name }) => name === wished) ? [...tasks, { name: wished, state: "not here" }] : tasks);
}

export const lookAgain = () => chooseTask(PAUSE).catch(() => {});  // asked again with the next event

export function watchTasks() {
  at("choice").addEventListener("change", () => { location.search = new URLSearchParams({ task: at("choice").value }); });
}

function draw(tasks) {
  const words = ({ name, state, round }) => `${name}${state === "running" ? (round ? `, round ${round}` : "") : `, ${state}`}`;
  const options = tasks.map((task) => {
    const option = make("option", "", words(task));
    option.value = task.name;
    return option;
  });
  const before = [...at("choice").options].map(({ text }) => text).join("\n");
  if (before !== options.map(({ text }) => text).join("\n")) at("choice").replaceChildren(...options);
  at("choice").value = chosen || tasks[0]?.name;
}
