"""Serves `/health` and `/server_info` like an engine; `/attempt` does what it is asked to do."""

import argparse
import json
import os
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import attempts

parser = argparse.ArgumentParser()
for name in ("host", "port", "tree-hash"):
    parser.add_argument(f"--{name}")
OPTIONS = parser.parse_args()


class Handler(BaseHTTPRequestHandler):
    def reply(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.reply({"tree_hash": OPTIONS.tree_hash, "env": dict(os.environ)})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            result = getattr(attempts, body["name"])(**body["arguments"])
            self.reply({"done": True, "result": result})
        except (OSError, subprocess.CalledProcessError) as error:
            self.reply({"done": False, "stopped_by": f"{type(error).__name__}: {error}"})

    def log_message(self, *args):
        pass


ThreadingHTTPServer.daemon_threads = True
ThreadingHTTPServer((OPTIONS.host, int(OPTIONS.port)), Handler).serve_forever()
