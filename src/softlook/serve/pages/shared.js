"use strict";
/* Both pages: elements, requests with the token, errors. Text from the server is only ever set as textContent. */
const get = (id) => document.getElementById(id);

function element(tag, text = "", ...children) {
  const made = document.createElement(tag);
  made.textContent = text;
  made.append(...children);
  return made;
}

function row(tag, ...cells) {
  return element("tr", "", ...cells.map((cell) => (cell instanceof Node ? element(tag, "", cell) : element(tag, cell))));
}

async function send(path, body) {
  const headers = {};
  if (get("token").value) headers.authorization = "Bearer " + get("token").value.trim();
  if (body !== undefined) headers["content-type"] = "application/json";
  const response = await fetch(path, { method: body === undefined ? "GET" : "POST", headers, body });
  const content = await response.json();
  if (response.status === 401) get("login").hidden = false;
  if (!response.ok) throw new Error(content.error ? content.error.message : `status ${response.status}`);
  return content;
}

async function start(load) {
  const run = async () => {
    try {
      get("problem").textContent = "";
      await load();
      get("login").hidden = true;
    } catch (error) {
      get("problem").textContent = error.message;
    }
  };
  get("login").addEventListener("submit", (event) => { event.preventDefault(); run(); });
  await run();
}
