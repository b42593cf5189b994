// Print the request that an agent builds from a session for Anthropic's interface.
//
//   node request.mjs KIND PLACE       reads the path of a file from each line of stdin
//
// Prints the messages of each file as one JSON array on a line. KIND is a key of programs.mjs.

import readline from "node:readline";
import { program } from "./programs.mjs";

const [kind, place] = process.argv.slice(2);
const { open, converted, streams } = await program(kind, place);
for await (const file of readline.createInterface({ input: process.stdin })) {
  const manager = open(file);
  const { messages } = manager.buildSessionContext();
  const { provider, model: id } = messages.findLast((message) => message.role === "assistant");
  const api = "anthropic-messages";
  const model = {
    api, provider, id, name: id, baseUrl: "http://127.0.0.1:9",
    reasoning: true, input: ["text", "image"], contextWindow: 1e9, maxTokens: 8192,
    cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
  };
  let payload;
  const replayed = await converted(structuredClone(messages), model, manager);
  const sending = await streams[api](model, { messages: replayed, tools: [] }, {
    apiKey: "none",
    thinkingEnabled: true,
    cacheRetention: "none",
    onPayload: (built) => {
      payload = JSON.parse(JSON.stringify(built));
      throw new Error("stopped");
    },
  });
  const { errorMessage } = await sending.result();
  if (!payload) throw new Error(`refused: ${errorMessage}`);
  console.log(JSON.stringify(payload.messages));
}
process.stdout.write("", () => process.exit(0)); // OpenClaw keeps timers
