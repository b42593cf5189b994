// Print what an agent loads of a session: the entries, the messages it would replay, and the
// requests it would send to each provider.
//
//   node view.mjs KIND PLACE       reads the path of a file from each line of stdin
//
// Prints one JSON object per file, each on a line. KIND is a key of programs.mjs. `messages` are those before OpenClaw's clean-up of a history.

import fs from "node:fs";
import readline from "node:readline";
import { program } from "./programs.mjs";

const [kind, place] = process.argv.slice(2);
const { load, open, converted, streams } = await program(kind, place);

// Return the request that a provider builds; it is stopped before it sends anything.
async function request(api, provider, id, messages, manager) {
  const model = {
    api, provider, id, name: id, baseUrl: "http://127.0.0.1:9", reasoning: true,
    input: ["text", "image"], contextWindow: 1e9, maxTokens: 8192,
    cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
  };
  let payload;
  const replayed = await converted(structuredClone(messages), model, manager);
  const stream = await streams[api](model, { messages: replayed }, {
    apiKey: "none",
    cacheRetention: "none",
    onPayload: (built) => {
      payload = JSON.parse(JSON.stringify(built));
      throw new Error("stopped");
    },
  });
  const { errorMessage } = await stream.result();
  if (!payload) throw new Error(`${api} refused: ${errorMessage}`);
  return { api, provider, model: id, messages: payload.messages ?? payload.input ?? payload.contents };
}

// Each provider that did not write the session, then those that did: [api, provider, model].
function providers(messages) {
  const list = Object.keys(streams).map((api) => [api, "stranger", "stranger-1"]);
  for (const { role, api, provider, model } of messages) {
    const own = [api, provider ?? "unknown", model ?? "unknown"];
    if (role === "assistant" && api in streams && !list.some((other) => `${other}` === `${own}`))
      list.push(own);
  }
  return list;
}

for await (const file of readline.createInterface({ input: process.stdin })) {
  const before = fs.readFileSync(file);
  const manager = open(file);
  const { messages } = manager.buildSessionContext();
  const view = {
    entries: load(file),
    held: manager.getEntries().length,
    branch: manager.getBranch().map((entry) => entry.id),
    messages,
    rewrote: !before.equals(fs.readFileSync(file)),
  };
  view.requests = [];
  for (const names of providers(messages)) view.requests.push(await request(...names, messages, manager));
  console.log(JSON.stringify(view));
}
process.stdout.write("", () => process.exit(0)); // OpenClaw keeps timers
