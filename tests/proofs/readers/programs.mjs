// The parts of the agents' published code that load a session and build requests from it.
//
//   program("pi", MODULES)             as @mariozechner publishes it
//   program("pi-latest", PACKAGE)      the bundle of @earendil-works/pi-coding-agent
//   program("openclaw", PACKAGE)       OpenClaw up to 2026.7, with its clean-up of a history
//
// Each returns load(file): the entries; open(file): a session manager; converted(messages, model,
// manager): the input of a provider; and streams: the functions that send it, by interface name.

import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const APIS = ["anthropic-messages", "openai-responses", "openai-completions", "google-generative-ai"];
const load = (...steps) => import(pathToFileURL(path.join(...steps)));

// Return exports of the first matching module that has them all; bundles rename their exports.
async function exported(directory, named, ...wanted) {
  for (const name of fs.readdirSync(directory).filter((file) => named.test(file))) {
    const source = fs.readFileSync(path.join(directory, name), "utf8");
    const list = source.slice(source.lastIndexOf("export {"));
    const matches = wanted.map(
      (symbol) => new RegExp(`\\b${symbol}(?: as ([\\w$]+))?[, ]`).exec(list),
    );
    if (!matches.every(Boolean)) continue;
    const module = await load(directory, name);
    return matches.map((match, index) => module[match[1] ?? wanted[index]]);
  }
  throw new Error(`no module exports ${wanted}`);
}

const programs = {
  pi: async (modules) => {
    const from = (name) => load(modules, "@mariozechner", name);
    const { SessionManager, loadEntriesFromFile } = await from(
      "pi-coding-agent/dist/core/session-manager.js",
    );
    const { convertToLlm } = await from("pi-coding-agent/dist/core/messages.js");
    const streams = {
      "anthropic-messages": (await from("pi-ai/dist/providers/anthropic.js")).streamAnthropic,
      "openai-responses": (await from("pi-ai/dist/providers/openai-responses.js"))
        .streamOpenAIResponses,
      "openai-completions": (await from("pi-ai/dist/providers/openai-completions.js"))
        .streamOpenAICompletions,
      "google-generative-ai": (await from("pi-ai/dist/providers/google.js")).streamGoogle,
    };
    return { load: loadEntriesFromFile, SessionManager, converted: convertToLlm, streams };
  },
  "pi-latest": async (place) => {
    const { SessionManager, convertToLlm, parseSessionEntries } = await load(
      place, "dist/bundle/index.js",
    );
    const chunks = path.join(place, "dist/bundle/chunks");
    const streams = {};
    for (const api of APIS) {
      const chunk = fs.readdirSync(chunks).find((name) => name.startsWith(`${api}-`));
      streams[api] = (await load(chunks, chunk)).stream;
    }
    return {
      load: (file) => parseSessionEntries(fs.readFileSync(file, "utf8")),
      SessionManager, converted: convertToLlm, streams,
    };
  },
  openclaw: async (place) => {
    const dist = path.join(place, "dist");
    const [SessionManager, loadEntriesFromFile] = await exported(
      dist, /^session-manager-.*\.js$/, "SessionManager", "loadEntriesFromFile",
    );
    const [convertToLlm] = await exported(dist, /^proxy-.*\.js$/, "convertToLlm");
    const [sanitize, validate] = await exported(
      dist, /^attempt\..*\.js$/, "sanitizeSessionHistory", "validateReplayTurns",
    );
    const [make] = await exported(
      dist, /^provider-stream-.*\.js$/, "createOpenClawTransportStreamFnForModel",
    );
    const converted = async (messages, model, sessionManager) => {
      const { api: modelApi, provider, id: modelId } = model;
      const options = { modelApi, provider, modelId, model, config: {}, env: {}, sessionManager };
      const prior = await sanitize({ ...options, messages });
      return convertToLlm(await validate({ ...options, messages: prior }));
    };
    const streams = Object.fromEntries(
      APIS.map((api) => [api, (model, ...rest) => make(model)(model, ...rest)]),
    );
    return { load: loadEntriesFromFile, SessionManager, converted, streams };
  },
};

export async function program(kind, place) {
  const { SessionManager, ...rest } = await programs[kind](place);
  return { open: (file) => SessionManager.open(file), ...rest };
}
