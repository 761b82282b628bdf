// Elements of the page. Rule: what comes from the server is put in as text, never as markup.

export const at = (id) => document.getElementById(id);

// Changes an element only where its text differs, so that a screen reader repeats nothing.
export function say(id, words) {
  if (at(id).textContent !== words) at(id).textContent = words;
}

export function make(tag, look, ...inside) {
  const made = document.createElement(tag);
  if (look) made.className = look;
  made.append(...inside);
  return made;
}

export function mark(pill, look, words) {
  if (pill.textContent !== words) pill.textContent = words;
  pill.className = `pill ${look}`;
}

export async function ask(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}
