/* The models, and a form that sends a request to one of them. */
const EXAMPLES = {
  "/v1/completions": (model) => ({ prompt: "Once upon a time", max_tokens: Math.min(model.context >> 2, 80) }),
  "/v1/chat/completions": (model) => ({ messages: [{ role: "user", content: "Hello!" }], max_tokens: Math.min(model.context >> 2, 80) }),
  "/v1/embeddings": () => ({ input: ["a first text", "a second text"] }),
  "/v1/translate": () => ({ text: "jeudi 3 mars 2022" }),
  "/v1/classify": () => ({ text: "a text to classify" }),
  "/v1/images/classify": () => ({ images: ["data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="] }),
  "/v1/tables/predict": (model) => ({ rows: [Object.fromEntries(model.table.columns.map((column) => [column.name, null]))] }),
};
const ROUTES = { completions: "/v1/completions", chat: "/v1/chat/completions", embeddings: "/v1/embeddings", translate: "/v1/translate", classify: "/v1/classify", tables: "/v1/tables/predict", images: "/v1/images/classify" };
const choices = [];

function describe(model) {
  if (model.labels) return `images: ${model.labels.join(", ")}`;
  if (!model.table) return `at most ${model.context.toLocaleString("en")} tokens`;
  const names = model.table.columns.map((column) => `${column.name} (${column.type})`);
  return `predicts ${model.table.target.join(", ")} from ${names.join(", ")}`;
}

function summarize(content) {
  if (content.choices) return content.choices.map((one) => one.text ?? one.message.content);
  if (content.predictions) return content.predictions.map(String);
  return (content.data || []).map((one) => {
    if (one.embedding) return `${one.embedding.length} numbers: ${one.embedding.slice(0, 4).map((x) => x.toFixed(4)).join(", ")}, …`;
    if ("scores" in one) return one.label === null ? "no class: the text is empty" : one.scores.map((score) => `${score.label} ${score.score.toFixed(4)}`).join("\n");
    return one.text;
  });
}

function choose() {
  const { model, route } = choices[get("model").selectedIndex];
  get("body").value = JSON.stringify({ model: model.id, ...EXAMPLES[route](model) }, null, 2);
  showCurl();
}

function showCurl() {
  const token = get("token").value ? " \\\n  -H 'authorization: Bearer …'" : "";
  const body = get("body").value.replaceAll("'", "'\\''");
  const url = location.origin + choices[get("model").selectedIndex].route;
  get("curl").textContent = `curl ${url} -H 'content-type: application/json'${token} \\\n  -d '${body}'`;
}

async function submit(event) {
  event.preventDefault();
  const { route } = choices[get("model").selectedIndex], before = performance.now();
  get("submit").disabled = true;
  get("failure").textContent = "";
  get("output").replaceChildren();
  try {
    const content = await send(route, get("body").value);
    get("output").append(...summarize(content).map((text) => element("pre", text)));
    get("output").append(element("details", "", element("summary", "The whole response"), element("pre", JSON.stringify(content, null, 1))));
  } catch (error) {
    get("failure").textContent = error.message;
  }
  get("time").textContent = `${Math.round(performance.now() - before)} ms`;
  get("submit").disabled = false;
}

start(async () => {
  const models = (await send("/v1/models")).data;
  choices.length = 0;
  for (const model of models) for (const name of model.capabilities) choices.push({ model, route: ROUTES[name] });
  get("models").replaceChildren(...models.map((model) => row("td", element("code", model.id), model.capabilities.map((name) => ROUTES[name]).join(", "), describe(model))));
  get("model").replaceChildren(...choices.map(({ model, route }) => element("option", `${model.id} · POST ${route}`)));
  get("try").hidden = false;
  choose();
});
get("model").addEventListener("change", choose);
get("body").addEventListener("input", showCurl);
get("try").addEventListener("submit", submit);
