// The request that an agent's own converter for Anthropic's interface builds of a session.
//
//   node converted.mjs pi MODULES FILE           pi-ai as @mariozechner publishes it
//   node converted.mjs pi-now PACKAGE FILE       the bundle of @earendil-works/pi-coding-agent
//   node converted.mjs openclaw PACKAGE FILE     OpenClaw's own transport
//
// The session is loaded by that program, too (OpenClaw's is a copy of pi's and is read as pi's).
// Prints one JSON object: messages.

import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [kind, place, file] = process.argv.slice(2);
const load = (...steps) => import(pathToFileURL(path.join(place, ...steps)));
const named = (directory, wanted) =>
  fs.readdirSync(path.join(place, directory)).filter((name) => wanted.test(name));

// The messages on the active branch, without what only a session manager knows.
function branch() {
  const entries = fs.readFileSync(file, "utf8").split("\n").filter(Boolean).map(JSON.parse);
  const byId = new Map(entries.map((entry) => [entry.id, entry]));
  const listed = [];
  for (let at = entries.at(-1); at; at = byId.get(at.parentId)) listed.unshift(at);
  return listed.filter((entry) => entry.type === "message").map((entry) => entry.message);
}

const programs = {
  pi: async () => {
    const { streamAnthropic } = await load("@mariozechner/pi-ai/dist/providers/anthropic.js");
    const { SessionManager } = await load(
      "@mariozechner/pi-coding-agent/dist/core/session-manager.js",
    );
    const { convertToLlm } = await load("@mariozechner/pi-coding-agent/dist/core/messages.js");
    const { messages } = SessionManager.open(file).buildSessionContext();
    return [streamAnthropic, convertToLlm(messages)];
  },
  "pi-now": async () => {
    const { SessionManager, convertToLlm } = await load("dist/bundle/index.js");
    const [chunk] = named("dist/bundle/chunks", /^anthropic-messages-.*\.js$/);
    const { stream } = await load("dist/bundle/chunks", chunk);
    const { messages } = SessionManager.open(file).buildSessionContext();
    return [stream, convertToLlm(messages)];
  },
  openclaw: async () => {
    for (const chunk of named("dist", /^provider-stream-.*\.js$/)) {
      const source = fs.readFileSync(path.join(place, "dist", chunk), "utf8");
      const alias = /createOpenClawTransportStreamFnForModel as (\w+)/.exec(source);
      if (!alias) continue;
      const make = (await load("dist", chunk))[alias[1]];
      return [(model, ...rest) => make(model)(model, ...rest), branch()];
    }
    throw new Error("no transport found");
  },
};

const [stream, messages] = await programs[kind]();
const { provider, model: id } = messages.findLast((one) => one.role === "assistant");
const model = {
  api: "anthropic-messages", provider, id, name: id, baseUrl: "http://127.0.0.1:9",
  reasoning: true, input: ["text", "image"], contextWindow: 1e9, maxTokens: 8192,
  cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
};
let payload;
const sending = stream(model, { messages: structuredClone(messages), tools: [] }, {
  apiKey: "none",
  thinkingEnabled: true,
  cacheRetention: "none",
  onPayload: (built) => {
    payload = JSON.parse(JSON.stringify(built));
    throw new Error("taken");
  },
});
const { errorMessage } = await sending.result();
if (!payload) throw new Error(`refused: ${errorMessage}`);
console.log(JSON.stringify(payload.messages));
process.exit(0);
