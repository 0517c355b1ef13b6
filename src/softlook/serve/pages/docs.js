/* The endpoints, from openapi.json: fields of requests and responses, and the statuses of errors. */
let schemas = {};

function resolve(schema) {
  return schema.$ref ? schemas[schema.$ref.split("/").pop()] : schema;
}

function typeOf(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf || schema.oneOf) return (schema.anyOf || schema.oneOf).map(typeOf).join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  const bounds = [[schema.minimum, "at least "], [schema.maximum, "at most "]].filter(([value]) => value !== undefined);
  const limits = bounds.length ? ` (${bounds.map(([value, text]) => text + value).join(", ")})` : "";
  if (schema.type === "array") return `list of ${typeOf(schema.items || {})}`;
  return (schema.type || "any value") + limits;
}

function fields(schema) {
  const { properties = {}, required = [] } = resolve(schema);
  const rows = Object.entries(properties).map(([name, field]) => {
    const fallback = required.includes(name) ? "required" : field.default === undefined ? "" : `default ${JSON.stringify(field.default)}`;
    return row("td", element("code", name), typeOf(field), fallback, field.description || "");
  });
  return element("table", "", element("thead", "", row("th", "field", "type", "", "")), element("tbody", "", ...rows));
}

function bodyOf(content) {
  const [type, { schema }] = Object.entries(content).pop(); // FastAPI lists JSON before the type that a route names
  return resolve(schema).properties ? fields(schema) : element("p", type);
}

function operation(path, method, description) {
  const section = element("section", "", element("h2", `${method.toUpperCase()} ${path}`), element("p", description.description || description.summary));
  if (description.requestBody) section.append(element("h3", "Request"), bodyOf(description.requestBody.content));
  const success = description.responses["200"];
  if (success && success.content) section.append(element("h3", "Response"), bodyOf(success.content));
  const errors = Object.entries(description.responses).filter(([status]) => status !== "200");
  const rows = errors.map(([status, response]) => row("td", status, response.description));
  section.append(element("details", "", element("summary", "Errors"), element("table", "", element("tbody", "", ...rows))));
  return section;
}

start(async () => {
  const api = await send("/openapi.json");
  schemas = api.components.schemas;
  const operations = Object.entries(api.paths).flatMap(([path, methods]) => Object.entries(methods).map((one) => [path, ...one]));
  const found = operations.sort(([, one], [, other]) => (other === "post") - (one === "post")).map((one) => operation(...one));
  const named = [...new Set(JSON.stringify(api.paths).match(/schemas\/\w+/g))].map((reference) => reference.split("/").pop());
  const inner = Object.keys(schemas).filter((name) => !named.includes(name) && schemas[name].properties);
  const parts = inner.map((name) => element("section", "", element("h3", name), fields(schemas[name])));
  get("operations").replaceChildren(...found, element("h2", "Objects inside requests and responses"), ...parts);
});
