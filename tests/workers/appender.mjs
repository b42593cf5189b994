// An agent at work on a session until its input ends, with the calls that agents on Node make.
//
//     node appender.mjs SESSION REFERENCE STYLE WRITER
//
// `path` is appendFileSync for each line, `kept` one descriptor for a turn, `rewrite` writeFileSync
// over the session at the end of a turn, `replace` writeFileSync beside it and renameSync: both from
// what was read before, and the last entry comes only with that. See appender.py.

import fs from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const [session, reference, style, writer] = process.argv.slice(2);
const between = (least, most) => least + Math.random() * (most - least);
const hex = (number) => Number(writer).toString(16).padStart(2, '0') + number.toString(16).padStart(6, '0');
const dump = (entry) => JSON.stringify(entry) + '\n';

function* entries(number) {
  const text = `result ${writer}.${number} ` + 'x'.repeat(1500 + (number % 7) * 1000);
  const messages = [
    { role: 'user', content: 'go on' },
    { role: 'assistant', content: [{ type: 'toolCall', id: 'c', name: 'exec', arguments: { command: 'ls' } }], stopReason: 'toolUse' },
    { role: 'toolResult', content: [{ type: 'text', text }], toolCallId: 'c', toolName: 'exec', isError: false },
    { role: 'assistant', content: [{ type: 'text', text: 'done.' }], stopReason: 'stop' },
  ];
  for (const [step, message] of messages.entries()) {
    const ident = number * 5 + step;
    yield { type: 'message', id: hex(ident + 1), parentId: ident ? hex(ident) : null, message };
  }
  yield { type: 'custom', customType: 'run-over', data: { run: number }, id: hex(number * 5 + 5), parentId: hex(number * 5 + 4) };
}

const read = () => fs.readFileSync(session, 'utf8').split('\n').slice(0, -1).map((line) => JSON.parse(line));
const state = () => {
  const { ino, size, mtimeNs, ctimeNs } = fs.statSync(session, { bigint: true });
  return `${ino} ${size} ${mtimeNs} ${ctimeNs}`;
};
const whole = {
  rewrite: (data) => fs.writeFileSync(session, data),
  replace: (data) => {
    fs.writeFileSync(session + '.new', data);
    fs.renameSync(session + '.new', session);
  },
}[style];

let over = false;
process.stdin.on('end', () => { over = true; }).resume();

let [turns, lines, rewrites, longest, kept, memory, left] = [0, 0, 0, 0, null, null, ''];
while (!over) {
  if (style === 'kept') kept = fs.openSync(session, 'a');
  if (whole && (memory === null || Math.random() < 0.5)) memory = read();
  for (const entry of entries(turns)) {
    const last = entry.type === 'custom';
    memory?.push(entry);
    if (whole && last) await sleep(between(0, 60));
    const begun = performance.now();
    if (whole && last && (turns % 3 || state() === left)) { // every third time only if nobody wrote, as OpenClaw
      whole(memory.map(dump).join(''));
      rewrites += 1;
    } else {
      if (kept !== null) fs.writeSync(kept, dump(entry));
      else fs.appendFileSync(session, dump(entry));
      if (whole) left = state();
      if (whole && last) memory = null;
    }
    longest = Math.max(longest, performance.now() - begun);
    fs.appendFileSync(reference, dump(entry));
    lines += 1;
    await sleep(between(0, 3));
  }
  if (kept !== null) fs.closeSync(kept);
  turns += 1;
  await sleep(turns % 6 ? between(10, 150) : 500);
}
console.log(JSON.stringify({ turns, lines, longest_ms: Math.round(longest * 10) / 10, rewrites }));
