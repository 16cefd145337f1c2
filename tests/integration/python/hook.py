"""A hook as many people write it: http.server of the standard library, and nothing else.

It prints its port, and reads as many bytes as Content-Length says.
"""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer


class Hook(BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        parent = request["parent"]
        child = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": parent["metadata"]["name"]},
            "data": {"who": parent["spec"]["who"]},
        }
        observed = request["children"]["ConfigMap.v1"]
        answer = {"status": {"children": len(observed)}, "children": [child]}
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())


server = HTTPServer(("127.0.0.1", 0), Hook)
print("port", server.server_port, flush=True)
server.serve_forever()
