// What pi makes of a session: the entries its session manager loads, the messages it would replay,
// and the requests that pi-ai would send to each provider.
//
//   node look.mjs NODE_MODULES FILE...      one JSON object a line, in the order of the files

import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [modules, ...files] = process.argv.slice(2);
const from = (name) => import(pathToFileURL(path.join(modules, "@mariozechner", name)));
const { SessionManager, loadEntriesFromFile } = await from(
  "pi-coding-agent/dist/core/session-manager.js",
);
const { convertToLlm } = await from("pi-coding-agent/dist/core/messages.js");
const providers = {
  "anthropic-messages": (await from("pi-ai/dist/providers/anthropic.js")).streamAnthropic,
  "openai-responses": (await from("pi-ai/dist/providers/openai-responses.js"))
    .streamOpenAIResponses,
  "openai-completions": (await from("pi-ai/dist/providers/openai-completions.js"))
    .streamOpenAICompletions,
  "google-generative-ai": (await from("pi-ai/dist/providers/google.js")).streamGoogle,
};

// Let a provider build its request, take it, and stop it before anything is sent.
async function request(api, provider, id, messages) {
  const model = {
    api, provider, id, name: id, baseUrl: "http://127.0.0.1:9", reasoning: true,
    input: ["text", "image"], contextWindow: 1e9, maxTokens: 8192,
    cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
  };
  let payload;
  const stream = providers[api](model, { messages: structuredClone(messages) }, {
    apiKey: "none",
    cacheRetention: "none",
    onPayload: (built) => {
      payload = JSON.parse(JSON.stringify(built));
      throw new Error("taken");
    },
  });
  const { errorMessage } = await stream.result();
  if (!payload) throw new Error(`${api} refused: ${errorMessage}`);
  return { api, provider, model: id, messages: payload.messages ?? payload.input ?? payload.contents };
}

// Each provider as a stranger to the session, and as the one that wrote it.
function readers(messages) {
  const listed = Object.keys(providers).map((api) => [api, "stranger", "stranger-1"]);
  for (const { role, api, provider, model } of messages) {
    const own = [api, provider ?? "unknown", model ?? "unknown"];
    if (role === "assistant" && api in providers && !listed.some((one) => `${one}` === `${own}`))
      listed.push(own);
  }
  return listed;
}

for (const file of files) {
  const before = fs.readFileSync(file);
  const entries = loadEntriesFromFile(file);
  const manager = SessionManager.open(file);
  const { messages } = manager.buildSessionContext();
  const replayed = convertToLlm(messages);
  const requests = [];
  for (const reader of readers(messages)) requests.push(await request(...reader, replayed));
  console.log(JSON.stringify({
    entries,
    held: manager.getEntries().length,
    branch: manager.getBranch().map((entry) => entry.id),
    messages,
    requests,
    rewrote: !before.equals(fs.readFileSync(file)),
  }));
}
