// An extension of the pi coding agent: the tool by which it hands in the result of the step that pwf has given it.
// It runs the command that pwf has put into its environment, which says whether the result is accepted.
import { execFile } from "node:child_process";

const TEXT = { type: "string", description: "The result as JSON text, where the step wants anything but an object." };
const VALUE = { type: "object", description: "The result, where the step wants an object.", additionalProperties: true };

export default function (pi) {
  const command = process.env.PWF_SUBMIT;
  if (!command) return;
  pi.registerTool({
    name: "submit",
    label: "Submit",
    description: "Hand in the result of your step. If it is rejected, you are told why: correct it, and submit again.",
    parameters: { type: "object", properties: { value: VALUE, json: TEXT }, additionalProperties: false },
    async execute(_id, given, signal) {
      const text = given.json ?? JSON.stringify(given.value);
      if (text === undefined) throw new Error("give one of value, an object, or json, a JSON text");
      return { content: [{ type: "text", text: await handIn(command, text, signal) }], details: {} };
    },
  });
}

function handIn(command, text, signal) {
  return new Promise((resolve, reject) => {
    const child = execFile("/bin/sh", ["-c", `exec ${command} -`], { signal }, (error, out, complaint) => {
      if (error) reject(new Error(complaint.trim() || String(error)));
      else resolve(out.trim());
    });
    child.stdin.on("error", () => {});
    child.stdin.end(text);
  });
}
