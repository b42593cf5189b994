// What an agent makes of a session: the entries its session manager loads, the messages it would
// replay, and the requests that it would send to each provider.
//
//   node look.mjs KIND PLACE FILE...      one JSON object a line, in the order of the files
//
// KIND is one of programs.mjs. OpenClaw's clean-up of a history runs, too, but for `messages`.

import fs from "node:fs";
import { program } from "./programs.mjs";

const [kind, place, ...files] = process.argv.slice(2);
const { load, open, converted, streams } = await program(kind, place);

// Let a provider build its request, take it, and stop it before anything is sent.
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
      throw new Error("taken");
    },
  });
  const { errorMessage } = await stream.result();
  if (!payload) throw new Error(`${api} refused: ${errorMessage}`);
  return { api, provider, model: id, messages: payload.messages ?? payload.input ?? payload.contents };
}

// Each provider as a stranger to the session, and as the one that wrote it.
function readers(messages) {
  const listed = Object.keys(streams).map((api) => [api, "stranger", "stranger-1"]);
  for (const { role, api, provider, model } of messages) {
    const own = [api, provider ?? "unknown", model ?? "unknown"];
    if (role === "assistant" && api in streams && !listed.some((one) => `${one}` === `${own}`))
      listed.push(own);
  }
  return listed;
}

for (const file of files) {
  const before = fs.readFileSync(file);
  const manager = open(file);
  const { messages } = manager.buildSessionContext();
  const told = {
    entries: load(file),
    held: manager.getEntries().length,
    branch: manager.getBranch().map((entry) => entry.id),
    messages,
    rewrote: !before.equals(fs.readFileSync(file)),
  };
  told.requests = [];
  for (const reader of readers(messages)) told.requests.push(await request(...reader, messages, manager));
  console.log(JSON.stringify(told));
}
process.stdout.write("", () => process.exit(0)); // OpenClaw keeps timers
