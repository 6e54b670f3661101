// pi as a session of pwf: a conversation in pi's terminal does the steps of the runs that belong to it.
//
//     pi --extension examples/agents/pi/pwf.js
//     pwf sessions                               # its id: pi-…, that of pi's own session, or $PWF_SESSION
//     pwf run review --session pi-…
//
// It starts `pwf mcp serve` (or $PWF_MCP) and asks it for what is next, while pi is idle. A step is a message to the
// model, which hands its result in with the tool `submit`. What is typed goes on as ever. A turn that ends without an
// accepted result is told again, twice; then, and where a turn is stopped with Esc, `/pwf` goes on.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const WAIT_S = 30; // of one question for what is next
const AGAIN_MS = 2_000; // after a question that failed
const TELLS_MAX = 3;
const VALUE = { type: "object", description: "The result, where the step wants an object.", additionalProperties: true };
const JSON_TEXT = { type: "string", description: "The result as JSON text, where it is no object and no reply." };
const TEXT = { type: "string", description: "Your reply, where the step asks for your words." };

export default function (pi) {
  let server; // of this conversation
  let step; // that the model has: request, revision
  let turnIsOver = () => {};
  let goOn = () => {};

  pi.on("session_start", (_event, ctx) => {
    server = new Server(process.env.PWF_SESSION ?? `pi-${ctx.sessionManager.getSessionId()}`);
    work(server, ctx).catch((error) => {
      if (!server.isOver || server.failed) ctx.ui.notify(`pwf: ${error.message}`, "error");
    });
  });
  pi.on("session_shutdown", () => server?.end());
  pi.on("agent_end", (event) => {
    const last = event.messages.findLast((message) => message.role === "assistant");
    turnIsOver(last?.stopReason === "aborted" ? "aborted" : "ended");
  });
  pi.registerCommand("pwf", {
    description: "Go on with the step of pwf",
    handler: async () => goOn(),
  });
  pi.registerTool({
    name: "submit",
    label: "Submit",
    description: "Hand in the result of the step of pwf. If it is rejected, you are told why: correct it, and submit again.",
    parameters: {
      type: "object",
      properties: { value: VALUE, json: JSON_TEXT, text: TEXT },
      additionalProperties: false,
    },
    async execute(_id, given) {
      if (step === undefined) throw new Error("there is no step of pwf to submit for");
      const { request, revision } = step;
      for (;;) {
        const said = await server.call("submit", { request, revision, ...given });
        if (said.data.verdict === "validating") continue;
        if (said.data.verdict !== "accepted") throw new Error(said.text);
        step = undefined;
        return { content: [{ type: "text", text: "Accepted." }], details: said.data };
      }
    },
  });

  async function work(server, ctx) {
    let told = { request: undefined, times: 0 };
    await server.begin();
    while (!server.isOver) {
      const next = await server.call("my_step", { wait_s: WAIT_S });
      if (next.data.state === "ended" || next.data.state === "told") {
        pi.sendMessage({ customType: "pwf", content: next.text, display: true });
        continue;
      }
      if (next.data.state !== "step") {
        if (next.isError) await sleep(AGAIN_MS);
        continue;
      }
      const { request, revision, node, workflow, prompt, returns } = next.data;
      if (told.request !== request) told = { request, times: 0 };
      const ended = new Promise((resolve) => (turnIsOver = resolve));
      step = { request, revision };
      told.times += 1;
      const again = told.times > 1 ? "Nothing was accepted for this yet.\n\n" : "";
      const wants = returns ? `a result that fits this JSON Schema: ${JSON.stringify(returns)}` : "your reply, as text";
      const words = `${again}Step ${node} of ${workflow}:\n\n${prompt}\n\nWhen it is done, call submit with ${wants}`;
      pi.sendUserMessage(words, ctx.isIdle() ? undefined : { deliverAs: "followUp" });
      const how = await ended;
      if (step !== undefined && (how === "aborted" || told.times >= TELLS_MAX)) {
        ctx.ui.notify(`pwf: step ${node} is left open; /pwf goes on with it`, "warning");
        await new Promise((resolve) => (goOn = resolve));
        told.times = 0;
      }
      step = undefined;
    }
  }
}

/** `pwf mcp serve`, spoken to as the Model Context Protocol says: a message of JSON-RPC in each line. */
class Server {
  constructor(session) {
    this.isOver = false;
    this.failed = undefined;
    this.number = 0;
    this.waiting = new Map();
    const command = process.env.PWF_MCP ?? "exec pwf mcp serve";
    this.child = spawn("/bin/sh", ["-c", `${command} --session "$0"`, session], { stdio: ["pipe", "pipe", "ignore"] });
    this.child.on("close", () => this.end(new Error("pwf mcp serve has ended; is pwf installed, with its extra mcp?")));
    this.child.stdin.on("error", () => {});
    createInterface({ input: this.child.stdout }).on("line", (line) => this.heard(line));
  }

  async begin() {
    const clientInfo = { name: "pi", version: "0" };
    await this.ask("initialize", { protocolVersion: "2025-06-18", capabilities: {}, clientInfo });
    this.send({ method: "notifications/initialized" });
  }

  /** What a tool says: `data` for programs, `text` for the model. */
  async call(name, given) {
    const said = await this.ask("tools/call", { name, arguments: given });
    const text = said.content.map((one) => one.text ?? "").join("\n");
    return { data: said.structuredContent ?? {}, text, isError: said.isError === true };
  }

  ask(method, params) {
    this.number += 1;
    const id = this.number;
    return new Promise((resolve, reject) => {
      if (this.isOver) return reject(this.failed ?? new Error("the session of pwf is over"));
      this.waiting.set(id, { resolve, reject });
      this.send({ id, method, params });
    });
  }

  send(message) {
    this.child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  }

  heard(line) {
    const message = JSON.parse(line);
    const waiting = this.waiting.get(message.id);
    if (waiting === undefined) return;
    this.waiting.delete(message.id);
    if (message.error) waiting.reject(new Error(message.error.message));
    else waiting.resolve(message.result);
  }

  /** `why`: it has ended by itself. */
  end(why) {
    if (this.isOver) return;
    this.isOver = true;
    this.failed = why;
    this.child.stdin.end();
    for (const { reject } of this.waiting.values()) reject(why ?? new Error("the session of pwf is over"));
    this.waiting.clear();
  }
}

function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
