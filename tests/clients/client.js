// usage: client.js SOCKET QUEUE TEXTS.json — enqueues each text twice (json and f32), waits, prints two lines of hex floats.
const fs = require("fs");
const { createClient, commandOptions } = require("redis");

async function main([socket, queue, path]) {
  const connection = createClient({ socket: { path: socket } });
  await connection.connect();
  const prefix = `sluice:{${queue}}:`;
  for (const text of JSON.parse(fs.readFileSync(path, "utf8"))) {
    for (const encoding of ["json", "f32"]) {
      const id = await connection.xAdd(prefix + "requests", "*", { text, encoding, notify: "1" });
      if (!(await connection.blPop(prefix + "wake:" + id, 30))) throw new Error("no wake token");
      // Raw floats are no text: a client that decodes bytes as UTF-8 needs an option to leave them alone.
      const reply = await connection.hGetAll(commandOptions({ returnBuffers: true }), prefix + "reply:" + id);
      if (reply.status.toString() !== "done") throw new Error(JSON.stringify(reply));
      const bytes = new Uint8Array(reply.embedding);
      const floats = encoding === "json" ? Float32Array.from(JSON.parse(reply.embedding.toString()))
                                         : new Float32Array(bytes.buffer);
      if (floats.length !== JSON.parse(reply.info.toString()).dim) throw new Error("wrong length");
      console.log(Buffer.from(floats.buffer).toString("hex"));
    }
  }
  await connection.quit();
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
