"""The greeting hook in Python, with nothing but the standard library.

    python3 hook.py 8080

serves it on that port of the loopback interface; 0 takes a free one. The port is printed.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def sync(parent, children):
    """From a Greeting and its ConfigMaps to what should exist."""
    name = parent["metadata"]["name"]
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"text": f"Hello, {parent['spec']['who']}!"},
    }
    observed = children["ConfigMap.v1"].get(name, {})
    return {
        "status": {"text": observed.get("data", {}).get("text", "")},
        "children": [config_map],
    }


class Hook(BaseHTTPRequestHandler):
    # Connections are kept open then. Without it each call makes a new one, which works as well.
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps(sync(request["parent"], request["children"])).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Hook)
    print("port", server.server_port, flush=True)
    server.serve_forever()
