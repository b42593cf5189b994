// Append messages to a session by OpenClaw's own code, as fast as it goes or with a pause (ms).
//
//     node claw_writer.mjs OPENCLAW SESSION KEY ROWS PAUSE
//
// Half of the messages are tool results of some thousand characters. Prints, as JSON, the digest
// of the text of each appended tool result by its id, what went wrong, and the longest wait (ms).
import crypto from "node:crypto";
import { pathToFileURL } from "node:url";

const [, , openclaw, sessionId, sessionKey, rows, pause] = process.argv;
const runtime = `${openclaw}/dist/plugin-sdk/session-transcript-runtime.js`;
const { appendSessionTranscriptMessageByIdentity: append } = await import(pathToFileURL(runtime));

const told = { rows: {}, ids: [], errors: [], longest: 0, seconds: 0 };
const nothing = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };

function call(number) {
  const content = [{ type: "toolCall", id: `w${number}`, name: "exec", arguments: {} }];
  const usage = { ...nothing, totalTokens: 0, cost: { ...nothing, total: 0 } };
  const by = { api: "openai-completions", provider: "loopback", model: "scripted" };
  return { role: "assistant", content, ...by, usage, stopReason: "toolUse", timestamp: Date.now() };
}

function result(number) {
  let text = "";
  for (let line = 0; line < 60; line++) text += `row ${number} line ${line} ä ${number * line} says\n`;
  const content = [{ type: "text", text }];
  return { role: "toolResult", toolCallId: `w${number - 1}`, toolName: "exec", content,
           isError: false, timestamp: Date.now() };
}

console.log("appending");
const begun = performance.now();
for (let number = 0; number < Number(rows); number++) {
  const message = number % 2 ? result(number) : call(number);
  const at = performance.now();
  try {
    const done = await append({ agentId: "main", sessionKey, sessionId, message, config: {} });
    const id = done?.messageId ?? done?.message?.id;
    if (!id) throw new Error("it gave no id");
    told.ids.push(id);
    if (message.role === "toolResult") {
      const text = message.content[0].text;
      told.rows[id] = crypto.createHash("sha256").update(text).digest("hex");
    }
  } catch (error) {
    told.errors.push(String(error).slice(0, 200));
  }
  told.longest = Math.max(told.longest, performance.now() - at);
  if (Number(pause)) await new Promise((go) => setTimeout(go, Number(pause)));
}
told.seconds = (performance.now() - begun) / 1000;
process.stdout.write(`${JSON.stringify(told)}\n`, () => process.exit(0));
