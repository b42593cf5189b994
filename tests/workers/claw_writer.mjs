// Append messages to sessions by OpenClaw's own code, to all of them at once, as its gateway does.
//
//     node claw_writer.mjs OPENCLAW ROWS SESSION KEY [SESSION KEY]...
//
// ROWS go into each: into the first one by one, into the others in groups, each in a transaction of
// its own. Half of the messages are tool results of some thousand characters. Prints, as JSON, the
// digest of the text of each appended tool result by its id, what went wrong, and the longest wait
// (ms).
import crypto from "node:crypto";
import { pathToFileURL } from "node:url";

const [, , openclaw, rows, ...named] = process.argv;
const runtime = `${openclaw}/dist/plugin-sdk/session-transcript-runtime.js`;
const {
  appendSessionTranscriptMessageByIdentity: append,
  appendSessionTranscriptMessagesByIdentity: appendGroup,
} = await import(pathToFileURL(runtime));
const GROUP = 8;
// 2026.8.2 appends groups only where it is told whose they are by the registry it had before.
const storePath = `${process.env.OPENCLAW_STATE_DIR}/agents/main/sessions/sessions.json`;

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

function note(done, message) {
  const id = done?.messageId ?? done?.message?.id;
  if (!id) throw new Error("it gave no id");
  told.ids.push(id);
  if (message.role === "toolResult") {
    const text = message.content[0].text;
    told.rows[id] = crypto.createHash("sha256").update(text).digest("hex");
  }
}

async function put(target, messages) {
  if (messages.length === 1) return [await append({ ...target, message: messages[0], config: {} })];
  const group = messages.map((message) => ({ message }));
  return await appendGroup({ ...target, storePath, messages: group, config: {} });
}

async function fill(sessionId, sessionKey, most) {
  for (let number = 0; number < Number(rows); number += most) {
    const messages = Array.from({ length: Math.min(most, Number(rows) - number) }, (_, at) =>
      (number + at) % 2 ? result(number + at) : call(number + at));
    const at = performance.now();
    try {
      const done = await put({ agentId: "main", sessionKey, sessionId }, messages);
      messages.forEach((message, place) => note(done[place], message));
    } catch (error) {
      told.errors.push(String(error).slice(0, 200));
    }
    told.longest = Math.max(told.longest, performance.now() - at);
    await new Promise((go) => setImmediate(go));
  }
}

console.log("appending");
const begun = performance.now();
const sessions = named.flatMap((word, at) => (at % 2 ? [] : [[word, named[at + 1]]]));
await Promise.all(sessions.map(([session, key], at) => fill(session, key, at ? GROUP : 1)));
told.seconds = (performance.now() - begun) / 1000;
process.stdout.write(`${JSON.stringify(told)}\n`, () => process.exit(0));
