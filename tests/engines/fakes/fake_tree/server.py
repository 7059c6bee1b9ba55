"""A stand-in engine on the standard library: SGLang's surface over a made-up next-token rule."""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

VOCABULARY = 97
parser = argparse.ArgumentParser()
for name in ("host", "port", "arm", "tree-hash"):
    parser.add_argument(f"--{name}")
OPTIONS, REST = parser.parse_known_args()
CONFIG = tomllib.loads(Path("engine.toml").read_text())
BEHAVIOUR = CONFIG["behaviour"]


def litter():
    """What an earlier launch left in each place; leaves something in each that can be written."""
    places = {"scratch": os.environ["TMPDIR"], "tree": ".", "cache": os.environ["FAKE_CACHE"]}
    found = [name for name, folder in places.items() if (Path(folder) / "litter").exists()]
    for folder in places.values():
        with contextlib.suppress(OSError):
            (Path(folder) / "litter").write_text("left behind")
    return found


FOUND = litter() if BEHAVIOUR == "litter" else []


def logits(prefix):
    return [((sum(prefix) * 31 + len(prefix) * 7 + i * 53) % 101) / 8 for i in range(VOCABULARY)]


def choose(prefix):
    row = logits(prefix)
    return max(range(VOCABULARY), key=row.__getitem__)


def top(prefix, k):
    row = logits(prefix)
    best = sorted(range(VOCABULARY), key=lambda i: -row[i])[:k]
    return [[row[i], i, None] for i in best]


def answer(body):
    prompt, n = body["input_ids"], body["sampling_params"]["max_new_tokens"]
    stops, ids = body["sampling_params"].get("stop_token_ids", []), []
    while len(ids) < n and (not ids or ids[-1] not in stops):
        ids.append(choose(prompt + ids))
    finish = "stop" if ids and ids[-1] in stops else "length"
    meta = {"finish_reason": {"type": finish}, "completion_tokens": len(ids), "spec_verify_ct": n}
    if body.get("return_logprob"):
        start, k = body["logprob_start_len"], body["top_logprobs_num"]
        spots = range(start + 1, len(prompt))
        pairs = [[logits(prompt[:i])[prompt[i]], prompt[i], None] for i in spots]
        meta["input_token_logprobs"] = [[None, prompt[start], None], *pairs]
        meta["input_top_logprobs"] = [None, *(top(prompt[:i], k) for i in spots)]
        meta["output_top_logprobs"] = [top(prompt, k)]
        if CONFIG.get("raw", False):
            meta["input_token_raw_logits"] = meta["input_token_logprobs"]
            meta["input_raw_logits_topk"] = meta["input_top_logprobs"]
            meta["output_raw_logits_topk"] = meta["output_top_logprobs"]
    return ids, meta


def events(ids, meta):
    step = 3
    for end in range(step, len(ids) + step, step):
        part = ids[: min(end, len(ids))]
        mid = {"completion_tokens": len(part), "finish_reason": None}
        shown = part[end - step :] if BEHAVIOUR == "incremental" else part
        yield {"output_ids": shown, "meta_info": meta if end >= len(ids) else mid}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, status, data, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        info = {"tree_hash": OPTIONS.tree_hash, "arm": OPTIONS.arm, "env": dict(os.environ)}
        info |= {"cwd": str(Path.cwd()), "args": REST, "cpus": sorted(os.sched_getaffinity(0))}
        info["found"] = FOUND
        if BEHAVIOUR == "wrong_hash":
            info["tree_hash"] = "0" * 40
        body = b"{" if BEHAVIOUR == "garbage_info" else json.dumps(info).encode()
        self.reply(200, body)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/flush_cache":
            self.reply(200, b"ok")
        elif BEHAVIOUR == "garbage":
            self.reply(200, b"<html>no</html>")
        elif any(i >= VOCABULARY for i in body["input_ids"]):
            self.reply(400, b'{"error": {"message": "id out of range"}}')
        else:
            self.generate(body)

    def generate(self, body):
        if BEHAVIOUR == "dies":
            os._exit(3)
        if BEHAVIOUR == "slow":
            time.sleep(30)
        ids, meta = answer(body)
        if not body["stream"]:
            self.reply(200, json.dumps({"output_ids": ids, "meta_info": meta}).encode())
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        blocks = [b"data: " + json.dumps(e).encode() + b"\n\n" for e in events(ids, meta)]
        for block in [*blocks, b"data: [DONE]\n\n"]:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(block), block))
            self.wfile.flush()
            time.sleep(CONFIG.get("pause_s", 0.0))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *args):
        pass


print("fake engine:", BEHAVIOUR, flush=True)
if BEHAVIOUR == "crash":
    sys.exit("planted crash at start")
if BEHAVIOUR == "hang":
    time.sleep(600)
if BEHAVIOUR in ("stubborn", "orphans"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if BEHAVIOUR == "orphans":
    # One child in the engine's session, and one in a session of its own.
    for own in (False, True):
        subprocess.Popen(["sleep", "600"], start_new_session=own)
ThreadingHTTPServer.daemon_threads = True
ThreadingHTTPServer((OPTIONS.host, int(OPTIONS.port)), Handler).serve_forever()
