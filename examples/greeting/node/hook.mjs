// The greeting hook in JavaScript for Node.js, with nothing but its own modules.
//
//     node hook.mjs 8080
//
// serves it on that port of the loopback interface; 0 takes a free one. The port is printed.

import { createServer } from "node:http";

// From a Greeting and its ConfigMaps to what should exist.
function sync({ parent, children }) {
  const { name } = parent.metadata;
  const configMap = {
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { name },
    data: { text: `Hello, ${parent.spec.who}!` },
  };
  const observed = children["ConfigMap.v1"][name];
  return {
    status: { text: observed?.data?.text ?? "" },
    children: [configMap],
  };
}

const server = createServer(async (request, response) => {
  try {
    const pieces = [];
    for await (const piece of request) {
      pieces.push(piece);
    }
    const answer = sync(JSON.parse(Buffer.concat(pieces).toString()));
    response.writeHead(200, { "Content-Type": "application/json" });
    response.end(JSON.stringify(answer));
  } catch (error) {
    response.writeHead(500);
    response.end(String(error));
  }
});

server.listen(Number(process.argv[2]), "127.0.0.1", () => {
  console.log("port", server.address().port);
});
